// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/steps/post_processor.h"

#include "base/error.h"

namespace snug::tokenizer {
namespace {

std::vector<int32_t> template_ids(const Node& specials, const std::string& name) {
  std::vector<int32_t> ids;
  for (const Node& id : specials[name.c_str()]["ids"].items()) ids.push_back(id.token_id());
  return ids;
}

Frame read_template(const Node& node) {
  Frame frame;
  bool text_seen = false;
  for (const Node& piece : node["single"].items()) {
    if (piece.find("Sequence")) {
      if (text_seen) piece.refuse("the text only once in a template");
      text_seen = true;
      continue;
    }
    auto& side = text_seen ? frame.after : frame.before;
    const auto ids = template_ids(node["special_tokens"], piece["SpecialToken"]["id"].string());
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) node["single"].refuse("a template that holds the text");
  return frame;
}

// Later steps add their tokens outside those of earlier steps.
Frame read_sequence(const Node& node, int depth) {
  if (depth >= kMaxSequenceDepth) node.refuse("post-processors that are nested less deeply");
  Frame frame;
  for (const Node& step : node["processors"].items()) {
    const Frame outer = read_post_processor(step, depth + 1);
    frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
    frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
  }
  return frame;
}

}  // namespace

Frame read_post_processor(const Node& node, int depth) {
  if (node.is_null()) return {};
  const std::string& type = node["type"].string();
  if (type == "ByteLevel") return {};  // only moves offsets
  if (type == "TemplateProcessing") return read_template(node);
  if (type == "Sequence") return read_sequence(node, depth);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{node["cls"].item(1).token_id()}, {node["sep"].item(1).token_id()}};
  }
  throw UserError(
      "{}: the post-processor '{}' is unknown; supported: ByteLevel, TemplateProcessing, Sequence, "
      "BertProcessing, RobertaProcessing",
      node.where(), type);
}

}  // namespace snug::tokenizer
