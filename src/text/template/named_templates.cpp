// SPDX-License-Identifier: Apache-2.0
#include "text/template/named_templates.h"

#include <algorithm>

namespace snug::tokenizer {
namespace {

struct Named {
  std::string_view name, text;
};

// As the makers of these formats publish them:
//   alpaca  github.com/tatsu-lab/stanford_alpaca, its headings alone; several turns
//   chatml  github.com/openai/openai-python, chatml.md
//   gemma   ai.google.dev/gemma/docs/core/prompt-structure; a system text stands before the first
//           question
//   llama3  llama.com/docs/model-cards-and-prompt-formats/meta-llama-3
//   phi3    huggingface.co/microsoft/Phi-3-mini-4k-instruct
constexpr Named kNamed[] = {
    {"alpaca",
     R"({{ bos_token }}{% for message in messages %}
{%- if not loop.first %}{{ '\n\n' }}{% endif %}
{%- if message.role == 'assistant' %}{{ '### Response:\n' + message.content + eos_token }}
{%- elif message.role == 'system' %}{{ message.content }}
{%- else %}{{ '### Instruction:\n' + message.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '\n\n### Response:\n' }}{% endif %})"},
    {"chatml",
     R"({% for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})"},
    {"gemma",
     R"({{ bos_token }}{% set system = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}
{%- for message in messages if message.role != 'system' %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
{{- system if loop.first else '' }}{{ message.content | trim }}{{ '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})"},
    {"llama3",
     R"({{ bos_token }}{% for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})"},
    {"phi3",
     R"({{ bos_token }}{% for message in messages %}
{{- '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
};

}  // namespace

std::vector<std::string_view> template_names() {
  std::vector<std::string_view> names;
  for (const Named& named : kNamed) names.push_back(named.name);
  return names;
}

std::string_view named_template(std::string_view name) {
  const auto found = std::ranges::find(kNamed, name, &Named::name);
  return found == std::end(kNamed) ? std::string_view() : found->text;
}

}  // namespace snug::tokenizer
