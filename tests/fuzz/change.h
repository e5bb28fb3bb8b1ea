// Changes of samples: of bytes, and of what the bytes mean. Each makes one change, drawn from
// `random`, and returns false where the bytes cannot be read as that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace snug::fuzz {

using Bytes = std::vector<uint8_t>;
using Random = std::mt19937_64;

// A bit, a byte, a cut, a swelling, a number that parsers trip over.
void change_bytes(Bytes& bytes, Random& random);

// A node becomes another value, a copy of another node, is removed or doubled.
bool change_json(Bytes& bytes, Random& random);
// The same in one of the lines.
bool change_json_line(Bytes& bytes, Random& random);

// Words, numbers and signs are removed, doubled, moved or replaced by each other: text with a
// grammar of its own (templates, YAML, CSV).
bool change_words(Bytes& bytes, Random& random);

// The header of a safetensors file, as JSON, with its length put right.
bool change_safetensors(Bytes& bytes, Random& random);

// A count, length, type or value of a GGUF file's header, or a whole key removed or doubled.
bool change_gguf(Bytes& bytes, Random& random);

}  // namespace snug::fuzz
