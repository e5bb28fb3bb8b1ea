// The choices of options: an enum class each, and beside it the one list of its texts, which help,
// checks and comparisons use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace snug::recipe {

// The texts of E, in the order of its values.
template <class E>
inline constexpr std::nullptr_t kWords = nullptr;

enum class Precision { Float32, BFloat16, Float16, MixedBFloat16, MixedFloat16 };
template <>
inline constexpr auto kWords<Precision> =
    std::to_array<std::string_view>({"32-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed"});

enum class MatmulPrecision { Highest, High, Medium };
template <>
inline constexpr auto kWords<MatmulPrecision> = std::to_array<std::string_view>({"highest", "high",
                                                                                 "medium"});

enum class Quantize { None, Nf4, Nf4Double, Fp4, Fp4Double, Int8, Int8Training };
template <>
inline constexpr auto kWords<Quantize> = std::to_array<std::string_view>(
    {"", "bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8", "bnb.int8-training"});

enum class Accelerator { Auto, Cpu, Cuda };
template <>
inline constexpr auto kWords<Accelerator> = std::to_array<std::string_view>({"auto", "cpu",
                                                                             "cuda"});

enum class Logger { Csv, Tensorboard };
template <>
inline constexpr auto kWords<Logger> = std::to_array<std::string_view>({"csv", "tensorboard"});

// The micro-batches whose memory by phase is recorded: the first of a step, or every one.
enum class LogMemory { Step, MicroBatch };
template <>
inline constexpr auto kWords<LogMemory> = std::to_array<std::string_view>({"step", "micro_batch"});

enum class Prefetch { Auto, On, Off };
template <>
inline constexpr auto kWords<Prefetch> = std::to_array<std::string_view>({"auto", "true", "false"});

// What devices shard: nothing, optimizer states, gradients too, weights too. Hybrid: all of these
// within a machine. Auto: as Fsdp.
enum class Strategy { Auto, Ddp, Zero1, Zero2, Fsdp, Hybrid };
template <>
inline constexpr auto kWords<Strategy> =
    std::to_array<std::string_view>({"auto", "ddp", "zero1", "zero2", "fsdp", "hybrid"});

enum class PipelineSchedule { OneForwardOneBackward, Gpipe };
template <>
inline constexpr auto kWords<PipelineSchedule> = std::to_array<std::string_view>({"1f1b", "gpipe"});

enum class LossNormalization { Global, Micro };  // Micro: LitGPT's mean per micro-batch
template <>
inline constexpr auto kWords<LossNormalization> = std::to_array<std::string_view>({"global",
                                                                                   "micro"});

// How the learning rate falls after the warm-up.
enum class LrSchedule { Cosine, Linear, Constant };
template <>
inline constexpr auto kWords<LrSchedule> = std::to_array<std::string_view>({"cosine", "linear",
                                                                            "constant"});

// What becomes of documents longer than a sample. Auto: texts are split, all others cut.
enum class LongRows { Auto, Cut, Split, Drop };
template <>
inline constexpr auto kWords<LongRows> = std::to_array<std::string_view>({"auto", "cut", "split",
                                                                          "drop"});

// By what one validation is better than another.
enum class BestMetric { Loss, Accuracy };
template <>
inline constexpr auto kWords<BestMetric> = std::to_array<std::string_view>({"loss", "accuracy"});

enum class OnOom { Stop, Split };
template <>
inline constexpr auto kWords<OnOom> = std::to_array<std::string_view>({"stop", "split"});

enum class AdapterInit { Default, Gaussian, Pissa };
template <>
inline constexpr auto kWords<AdapterInit> = std::to_array<std::string_view>({"default", "gaussian",
                                                                             "pissa"});

enum class StateType { Auto, Float32, BFloat16 };
template <>
inline constexpr auto kWords<StateType> = std::to_array<std::string_view>({"auto", "float32",
                                                                           "bfloat16"});

// What training minimises (tables/objectives.h).
enum class ObjectiveName {
  Sft,
  Dpo,
  Ipo,
  Hinge,
  Orpo,
  Simpo,
  Cpo,
  Kto,
  Classification,
  Reward,
  Distill
};
template <>
inline constexpr auto kWords<ObjectiveName> =
    std::to_array<std::string_view>({"sft", "dpo", "ipo", "hinge", "orpo", "simpo", "cpo", "kto",
                                     "classification", "reward", "distill"});

// Auto: 16 bits where products have 16.
enum class FrozenType { Auto, Float32 };
template <>
inline constexpr auto kWords<FrozenType> = std::to_array<std::string_view>({"auto", "float32"});

// Adam8bit to PagedAdamW8bit are other programs' names (optimizers.h).
enum class OptimizerName {
  AdamW,
  Sgd,
  AdamW8bit,
  Adam8bit,
  DeepSpeedCpu,
  PagedAdamW,
  PagedAdamW8bit,
  Adafactor,
  Lion
};
template <>
inline constexpr auto kWords<OptimizerName> =
    std::to_array<std::string_view>({"adamw", "sgd", "adamw_8bit", "adam_8bit", "deepspeed_cpu",
                                     "paged_adamw", "paged_adamw_8bit", "adafactor", "lion"});

template <class E>
constexpr std::string_view word_of(E value) {
  return kWords<E>[static_cast<size_t>(value)];
}

// All texts of E except empty ones, as a row's choices.
template <class E>
std::vector<std::string> choices_of() {
  std::vector<std::string> choices;
  for (const std::string_view word : kWords<E>)
    if (!word.empty()) choices.emplace_back(word);
  return choices;
}

// The position of `word` in `known`; throws UserError for an unknown word.
size_t index_of_word(std::string_view word, std::span<const std::string_view> known);

// A text of a recipe that must be one of E's words. It stays a text because recipes are read,
// printed and compared as text, and may hold another program's word until they are resolved.
template <class E>
class Word : public std::string {
 public:
  using std::string::string;
  Word(E value) : std::string(word_of(value)) {}
  Word(std::string text) : std::string(std::move(text)) {}

  // Throws UserError if the text is not one of E's words.
  E value() const { return static_cast<E>(index_of_word(*this, kWords<E>)); }
  bool operator==(E value) const { return std::string_view(*this) == word_of(value); }
};

}  // namespace snug::recipe
