// Numbers and texts between ranks, and meshes of more than one axis.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "ranks_main.h"

namespace snug::dist {
namespace {

Group& all() { return test::row().world(); }

TEST(HostValues, Sum) {
  const double n = all().size();
  const std::vector<double> sums = all().sum({1.0, static_cast<double>(all().rank()), 0.125});
  EXPECT_EQ(sums, (std::vector<double>{n, n * (n - 1) / 2, n / 8}));
}

TEST(HostValues, TextsOfAllLengths) {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{3'000'000}}) {
    const std::string text(length, static_cast<char>('a' + all().rank()));
    for (int root = 0; root < all().size(); ++root) {
      EXPECT_EQ(all().broadcast_text(text, root),
                std::string(length, static_cast<char>('a' + root)));
    }
  }
  const auto rank_text = [](int rank) { return std::string(static_cast<size_t>(rank) * 3, 'x'); };
  const std::vector<std::string> texts = all().gather_texts(rank_text(all().rank()));
  ASSERT_EQ(texts.size(), static_cast<size_t>(all().size()));
  for (int rank = 0; rank < all().size(); ++rank)
    EXPECT_EQ(texts[static_cast<size_t>(rank)], rank_text(rank));
}

TEST(HostValues, BarrierWaitsForTheLast) {
  all().barrier();
  const auto begin = std::chrono::steady_clock::now();
  if (all().rank() == all().size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  all().barrier();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(290));
}

// Each group of a grid sums the ranks of its own members.
TEST(Mesh, GroupsDifferInOneCoordinate) {
  MeshShape shape;
  shape[Axis::Replicate] = all().size() / 2;
  shape[Axis::Tensor] = 2;
  const auto mesh = test::world().make_mesh(shape, at::kCPU);
  const int rank = test::world().rank();
  for (size_t a = 0; a < kNumAxes; ++a) {
    const auto axis = static_cast<Axis>(a);
    double wanted = 0;
    for (const int member : shape.members(axis, rank)) wanted += member;
    EXPECT_EQ(mesh->group(axis).size(), shape[axis]);
    EXPECT_EQ(mesh->group(axis).rank(), mesh->coordinate(axis));
    EXPECT_EQ(mesh->group(axis).sum({static_cast<double>(rank)})[0], wanted)
        << recipe::axis_name(axis);
  }
  const at::Tensor tensor = at::full({100'000}, rank);
  mesh->group(Axis::Tensor).wait(mesh->group(Axis::Tensor).all_reduce(tensor.to(at::kFloat)));
  EXPECT_EQ(mesh->data().size(), all().size() / 2);
}

TEST(Mesh, MustHaveAsManyRanksAsProcesses) {
  MeshShape shape;
  shape[Axis::Shard] = all().size() + 1;
  EXPECT_THROW(test::world().make_mesh(shape, at::kCPU), UserError);
}

}  // namespace
}  // namespace snug::dist
