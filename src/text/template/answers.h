// Whose words the text of a rendered conversation is. The interpreter says for which turn it
// printed what (jinja::Trace), which is right for any template that loops over the messages; what
// a prompt ends with is taken off the front of an answer. Templates that mark answers with
// {% generation %} are taken at their word. Where a template loops over messages of its own making,
// answers are found by rendering once more with marks in their place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>

#include "text/template/interpreter.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer {

// Renders turns, with the beginning of an answer behind them if `opens`. `trace` may be null.
using RenderTurns =
    std::function<std::string(std::span<const Message>, bool opens, jinja::Trace* trace)>;

// What the template writes behind these turns for an answer to go on from, up to where thoughts
// begin: those are an answer's own, also where the template begins them. Empty if it refuses.
std::string opening_behind(std::span<const Message> turns, const RenderTurns& render);

// `opening`: the usual opening_behind() a question.
RenderedChat find_answers(std::span<const Message> turns, const RenderTurns& render,
                          const std::string& opening, bool template_marks_answers);

}  // namespace snug::tokenizer
