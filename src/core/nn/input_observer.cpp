// SPDX-License-Identifier: Apache-2.0
#include "core/nn/input_observer.h"

#include <utility>

namespace snug::nn {
namespace {

thread_local const InputObserver* current_observer = nullptr;

}  // namespace

InputObserver::InputObserver(See see)
    : see_(std::move(see)), before_(std::exchange(current_observer, this)) {}

InputObserver::~InputObserver() { current_observer = before_; }

const InputObserver* InputObserver::current() { return current_observer; }

}  // namespace snug::nn
