// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/backward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

namespace snug::exec {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

class Pass {
 public:
  void add_root(const Edge& edge, at::Tensor gradient) {
    // Only this edge keeps the node alive for a leaf that is passed through unused.
    roots_.push_back(edge);
    count_uses(edge.function.get());
    deliver(edge, std::move(gradient));
    ready_.insert({edge.function->sequence_nr(), edge.function.get()});
  }

  void run() {
    while (!ready_.empty()) {
      const auto latest = std::prev(ready_.end());
      Node* node = latest->second;
      ready_.erase(latest);
      // A root that another root leads to must wait for it.
      if (uses_left_[node] == 0 && waiting_.contains(node)) step(node);
    }
  }

 private:
  // Counts the edges into each node from nodes that will run.
  void count_uses(Node* root) {
    std::vector<Node*> stack;
    if (uses_left_.try_emplace(root, 0).second) stack.push_back(root);
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      for (const Edge& edge : node->next_edges()) {
        if (!edge.is_valid()) continue;
        if (uses_left_.try_emplace(edge.function.get(), 0).second)
          stack.push_back(edge.function.get());
        ++uses_left_[edge.function.get()];
      }
    }
  }

  void deliver(const Edge& edge, at::Tensor gradient) {
    variable_list& inputs = waiting_[edge.function.get()];
    inputs.resize(std::max<size_t>(inputs.size(), edge.function->num_inputs()));
    if (!gradient.defined()) return;
    at::Tensor& slot = inputs[edge.input_nr];
    slot = slot.defined() ? slot + gradient : std::move(gradient);
  }

  void step(Node* node) {
    variable_list inputs = std::move(waiting_[node]);
    waiting_.erase(node);
    variable_list outputs = (*node)(std::move(inputs));
    node->release_variables();
    torch::autograd::validate_outputs(node->next_edges(), outputs,
                                      [](const std::string& text) { return text; });
    for (size_t i = 0; i < node->num_outputs(); ++i) {
      const Edge& edge = node->next_edge(i);
      if (!edge.is_valid()) continue;
      deliver(edge, std::move(outputs[i]));
      if (--uses_left_[edge.function.get()] == 0)
        ready_.insert({edge.function->sequence_nr(), edge.function.get()});
    }
  }

  std::vector<Edge> roots_;
  std::unordered_map<Node*, int64_t> uses_left_;
  std::unordered_map<Node*, variable_list> waiting_;  // gradients collected so far
  std::multimap<uint64_t, Node*> ready_;              // by sequence number
};

}  // namespace

void backward(const std::vector<at::Tensor>& outputs, std::vector<at::Tensor> gradients) {
  const at::NoGradGuard no_gradients;
  Pass pass;
  for (size_t i = 0; i < outputs.size(); ++i)
    pass.add_root(torch::autograd::impl::gradient_edge(outputs[i]), std::move(gradients[i]));
  pass.run();
}

}  // namespace snug::exec
