// Flat units of odd sizes over 1, 2 and 3 ranks, which are objects side by side here: what a
// collective would move is copied by hand.
// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/flat_unit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/memory/placement.h"
#include "core/ops/device/device.h"

namespace snug::exec {
namespace {

constexpr int64_t kFlatBlock = 256;

// The same unit on one rank.
struct FlatRank {
  FlatRank(const std::vector<std::vector<int64_t>>& shapes, int part, int parts, bool quantized) {
    for (const auto& shape : shapes) {
      nn::Parameter parameter{.name = std::to_string(own.size()), .shape = shape};
      if (quantized) parameter.quantization = {.format = kernels::QuantizedFormat::Int8};
      own.push_back(std::make_unique<nn::Parameter>(std::move(parameter)));
      pointers.push_back(own.back().get());
    }
    flat = std::make_unique<FlatUnit>(pointers, at::kCPU, at::kFloat, part, parts);
  }
  // Different numbers everywhere, the same on every rank; small, so that bytes and bfloat16 hold
  // them.
  void fill() const {
    int64_t first = 1;
    for (const nn::Parameter* p : pointers) {
      p->value.detach().copy_(numbers(*p, first));
      ++first;
    }
  }
  static at::Tensor numbers(const nn::Parameter& p, int64_t first) {
    return at::arange(first, first + p.value.numel()).remainder(97).view(p.value.sizes());
  }

  std::vector<std::unique_ptr<nn::Parameter>> own;
  std::vector<nn::Parameter*> pointers;
  std::unique_ptr<FlatUnit> flat;
};

struct FlatCase {
  std::vector<std::vector<int64_t>> shapes;
  int parts;
  bool quantized = false;
};

class FlatUnitOf : public ::testing::TestWithParam<FlatCase> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
  void SetUp() override {
    for (int part = 0; part < GetParam().parts; ++part)
      ranks_.emplace_back(GetParam().shapes, part, GetParam().parts, GetParam().quantized);
  }
  // What an all-gather does.
  void gather() {
    std::vector<at::Tensor> parts;
    for (const FlatRank& rank : ranks_) {
      memory::refill(rank.flat->values(), memory::Category::Parameters);
      rank.flat->values().fill_(88);
      rank.flat->values_from_pieces();
      parts.push_back(rank.flat->own_values().clone());
    }
    for (const FlatRank& rank : ranks_) rank.flat->values().copy_(at::cat(parts));
  }
  void expect_filled() const {
    for (const FlatRank& rank : ranks_)
      for (size_t i = 0; i < rank.pointers.size(); ++i) {
        const nn::Parameter& p = *rank.pointers[i];
        const at::Tensor wanted = FlatRank::numbers(p, static_cast<int64_t>(i) + 1);
        EXPECT_TRUE(at::equal(p.value.detach().to(at::kLong), wanted)) << p.name;
      }
  }
  std::vector<FlatRank> ranks_;
};

TEST_P(FlatUnitOf, PiecesOfAllRanksAreEachParameterOnce) {
  const FlatLayout layout(ranks_[0].pointers, GetParam().parts);
  EXPECT_EQ(layout.part_elements % kFlatBlock, 0);
  int64_t end = 0;
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    const nn::Parameter* p = ranks_[0].pointers[i];
    EXPECT_EQ(layout.offsets[i] % kFlatBlock, 0);
    EXPECT_GE(layout.offsets[i], end);
    EXPECT_LT(layout.offsets[i] - end, kFlatBlock) << "padding before parameter " << i;
    end = layout.offsets[i] + p->value.numel();
    int64_t next = 0;
    for (const FlatRank& rank : ranks_) {
      rank.fill();
      bool is_here = false;
      for (const auto& piece : rank.flat->pieces()) {
        if (piece->whole != rank.pointers[i]) continue;
        is_here = true;
        EXPECT_EQ(piece->begin, next);
        EXPECT_EQ(piece->offset % kFlatBlock, 0) << "a block of optimizer states is split";
        next = piece->end;
        EXPECT_TRUE(
            at::equal(piece->parameter.value.detach(),
                      piece->whole->value.detach().flatten().slice(0, piece->begin, piece->end)));
      }
      EXPECT_EQ(rank.flat->holds(*rank.pointers[i]), is_here);
    }
    EXPECT_EQ(next, p->value.numel());
  }
  EXPECT_GE(layout.total_elements(), end);
  EXPECT_LT(layout.total_elements() - end, kFlatBlock * (GetParam().parts + 1));
}

// Kept on the device or on the host, in the type of the weights or gathered in another.
TEST_P(FlatUnitOf, WhatIsGatheredIsWhatWasKept) {
  for (const bool on_device : {true, false}) {
    for (const at::ScalarType computed : {at::kFloat, at::kBFloat16}) {
      ranks_.clear();
      const int64_t before = memory::cpu_ledger().allocated();
      SetUp();
      int64_t part_bytes = 0;
      for (const FlatRank& rank : ranks_) {
        rank.fill();
        std::vector<at::Tensor> values;
        for (const auto& piece : rank.flat->pieces())
          values.push_back(piece->parameter.value.detach().clone());
        rank.flat->keep_part_apart(on_device, computed);
        part_bytes +=
            static_cast<int64_t>(rank.flat->part().numel() * rank.flat->part().element_size());
        for (size_t i = 0; i < values.size(); ++i) {
          nn::Parameter& piece = rank.flat->pieces()[i]->parameter;
          if (!on_device) piece.allocate_home();
          piece.kept().copy_(values[i]);
        }
      }
      EXPECT_EQ(memory::cpu_ledger().allocated() - before, on_device ? part_bytes : 0);
      gather();
      const bool changes = computed != at::kFloat && !GetParam().quantized;
      EXPECT_EQ(ranks_[0].pointers[0]->value.scalar_type(),
                changes ? computed : (GetParam().quantized ? at::kByte : at::kFloat));
      expect_filled();
    }
  }
}

TEST_P(FlatUnitOf, WhatIsWrittenIsKept) {
  for (const FlatRank& rank : ranks_) {
    rank.flat->keep_part_apart(/*on_device=*/true, at::kBFloat16);
    rank.flat->show(FlatUnit::Form::Kept);
    memory::refill(rank.flat->values(), memory::Category::Parameters);
    rank.fill();
    rank.flat->pieces_from_values();
    memory::vacate(rank.flat->values());
    rank.flat->show(FlatUnit::Form::Computed);
  }
  gather();
  expect_filled();
}

class TrainedFlatUnitOf : public FlatUnitOf {};

TEST_P(TrainedFlatUnitOf, GradientsThatNobodyWroteAreZero) {
  const int64_t before =
      memory::cpu_ledger().by_category()[static_cast<size_t>(memory::Category::Gradients)];
  std::vector<at::Tensor> wholes;
  for (const FlatRank& rank : ranks_) {
    rank.flat->provide_gradients().fill_(88);
    // The last parameter has no gradient in this backward.
    for (size_t i = 0; i + 1 < rank.pointers.size(); ++i)
      ops::add_to_gradient(rank.pointers[i]->value, at::ones(rank.pointers[i]->shape));
    rank.flat->complete_gradients();
    for (const nn::Parameter* p : rank.pointers)
      EXPECT_TRUE(p->value.grad().is_alias_of(rank.flat->gradients())) << p->name;
    EXPECT_TRUE(
        at::equal(rank.pointers.back()->value.grad(), at::zeros(rank.pointers.back()->shape)));
    wholes.push_back(rank.flat->take_gradients());
    EXPECT_FALSE(rank.flat->has_gradients());
  }
  const at::Tensor sum = at::stack(wholes).sum(0);
  for (FlatRank& rank : ranks_) {
    rank.flat->give_to_pieces(rank.flat->own_part_of(sum).clone());
    for (const auto& piece : rank.flat->pieces()) {
      const bool written = piece->whole != rank.pointers.back();
      EXPECT_TRUE(at::equal(piece->parameter.value.grad(),
                            at::full({piece->end - piece->begin}, written ? GetParam().parts : 0)));
    }
    rank.flat->drop_gradients();
    EXPECT_FALSE(rank.flat->has_gradients());
  }
  wholes.clear();
  EXPECT_EQ(memory::cpu_ledger().by_category()[static_cast<size_t>(memory::Category::Gradients)],
            before);
}

std::vector<FlatCase> flat_cases(bool with_quantized) {
  std::vector<FlatCase> all;
  for (const int parts : {1, 2, 3}) {
    all.push_back({{{1}, {257}, {255}}, parts});
    all.push_back({{{13, 77}, {256}, {3}, {40, 19}}, parts});
    all.push_back({{{7}}, parts});  // the other ranks hold padding only
    if (with_quantized) all.push_back({{{5, 129}, {9, 33}}, parts, /*quantized=*/true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, FlatUnitOf, ::testing::ValuesIn(flat_cases(true)));
INSTANTIATE_TEST_SUITE_P(Cases, TrainedFlatUnitOf, ::testing::ValuesIn(flat_cases(false)));

}  // namespace
}  // namespace snug::exec
