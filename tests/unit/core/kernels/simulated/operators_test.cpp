// Each CUDA operator against its CPU twin, with odd sizes, all types, optional arguments on and
// off.
// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "core/kernels/cpu/quantized.h"
#include "core/kernels/cuda/operators.h"
#include "unit/core/kernels/simulated/device_array.h"
#include "unit/core/kernels/teacher_rows.h"

namespace snug::kernels::simulated {
namespace {

using cpu::kAllTypes;
using cpu::random_array;
using cpu::teacher_rows;

const Activation kActivations[] = {Activation::Relu, Activation::Gelu,        Activation::GeluTanh,
                                   Activation::Silu, Activation::ReluSquared, Activation::Sigmoid};

TEST(SimulatedActivation, IsTheCpus) {
  for (const Scalar type : kAllTypes) {
    for (const int64_t count : {0, 1, 5, 1023, 1025}) {
      for (const Activation activation : kActivations) {
        const Array x = random_array(type, count, 1, 4), dy = random_array(type, count, 2);
        Array y(type, count), dx(type, count);
        cpu::activation_forward({activation, type, count, x.data(), y.data()});
        cpu::activation_backward({activation, type, count, dy.data(), x.data(), dx.data()});
        over_seeds([&] {
          DeviceArray on_device(x), out(type, count), gradient(dy);
          cuda::activation_forward({activation, type, count, on_device.data(), out.data()},
                                   kStream);
          expect_close(out, y, "y");
          // Over dy, as a backward may.
          cuda::activation_backward(
              {activation, type, count, gradient.data(), on_device.data(), gradient.data()},
              kStream);
          expect_close(gradient, dx, "dx");
          // And the value over x.
          cuda::activation_backward({activation, type, count, gradient.data(), on_device.data(),
                                     gradient.data(), on_device.data()},
                                    kStream);
          expect_close(on_device, y, "y again");
        });
      }
    }
  }
}

TEST(SimulatedActivation, OfMoreThanARowOfTheGridIsTheCpus) {
  const int64_t count = (int64_t{1} << 20) + 3;
  const Array x = random_array(Scalar::BF16, count, 1);
  DeviceArray on_device(x), out(Scalar::BF16, count);
  Array y(Scalar::BF16, count);
  cpu::activation_forward({Activation::Relu, Scalar::BF16, count, x.data(), y.data()});
  cuda::activation_forward({Activation::Relu, Scalar::BF16, count, on_device.data(), out.data()},
                           kStream);
  EXPECT_TRUE(out == y);
}

void gated_is_the_cpus(GateClamp clamp) {
  for (const Scalar type : kAllTypes) {
    for (const int64_t features : {1, 7, 1100}) {
      const int64_t rows = 3;
      // Halves of a fused projection.
      const Array x = random_array(type, rows * 2 * features, 1, 3);
      const Array dy = random_array(type, rows * features, 2);
      const auto half = [&](auto& array) {
        return static_cast<char*>(const_cast<void*>(static_cast<const void*>(array.data()))) +
               features * scalar_bytes(type);
      };
      Array y(type, rows * features), dx(type, x.size());
      const auto forward = [&](const Array& x, Array& y) {
        return GatedForward{.activation = Activation::Silu,
                            .clamp = clamp,
                            .type = type,
                            .rows = rows,
                            .features = features,
                            .gate = x.data(),
                            .up = half(x),
                            .y = y.data(),
                            .input_stride = 2 * features};
      };
      const auto backward = [&](const Array& dy, const Array& x, Array& dx) {
        return GatedBackward{.activation = Activation::Silu,
                             .clamp = clamp,
                             .type = type,
                             .rows = rows,
                             .features = features,
                             .dy = dy.data(),
                             .gate = x.data(),
                             .up = half(x),
                             .dgate = dx.data(),
                             .dup = half(dx),
                             .input_stride = 2 * features};
      };
      cpu::gated_forward(forward(x, y));
      cpu::gated_backward(backward(dy, x, dx));
      over_seeds([&] {
        DeviceArray dev_x(x), dev_dy(dy), dev_y(type, y.size()), dev_dx(type, x.size());
        cuda::gated_forward(forward(dev_x, dev_y), kStream);
        expect_close(dev_y, y, "y");
        cuda::gated_backward(backward(dev_dy, dev_x, dev_dx), kStream);
        expect_close(dev_dx, dx, "dx");
        auto with_value = backward(dev_dy, dev_x, dev_dx);
        with_value.y = dev_dy.data();
        cuda::gated_backward(with_value, kStream);
        expect_close(dev_dx, dx, "dx");
        expect_close(dev_dy, y, "y again");
      });
    }
  }
}

TEST(SimulatedActivation, GatedIsTheCpus) {
  gated_is_the_cpus({});
  gated_is_the_cpus({.limit = 0.75F, .alpha = 1.702F});
  cuda::gated_forward({.rows = 0, .features = 4}, kStream);
  cuda::gated_backward({.rows = 0, .features = 4}, kStream);
}

std::vector<int32_t> targets_for(int64_t rows, int64_t vocabulary) {
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r)
    targets.push_back(r % 3 == 1 ? -100 : static_cast<int32_t>(r * 7 % vocabulary));
  return targets;
}

struct CrossEntropyCase {
  int64_t rows, vocabulary, padding;  // of a row, beyond the vocabulary
  float smoothing, z_loss;
  bool in_place, need_gradient;
  Scalar type;
  bool scales_rows = false;
  int64_t top_k = 0;
  float beta = 0, target_weight = 1;
};

void expect_cross_entropy(const CrossEntropyCase& c) {
  const int64_t stride = c.vocabulary + c.padding;
  const Array logits = random_array(Scalar::F32, c.rows * stride, 3, 4);
  const auto targets = targets_for(c.rows, c.vocabulary);
  Array factors = random_array(Scalar::F32, c.rows, 8);
  const std::vector<float> teacher = teacher_rows(c.rows, c.vocabulary, c.top_k);
  const auto args = [&](Array& logits, Array& gradient, const int32_t* targets, Array& losses,
                        const float* factors, const float* teacher) {
    return CrossEntropy{.rows = c.rows,
                        .vocabulary = c.vocabulary,
                        .logits = logits.floats(),
                        .logits_stride = stride,
                        .targets = targets,
                        .scale = 0.5f,
                        .label_smoothing = c.smoothing,
                        .z_loss = c.z_loss,
                        .need_gradient = c.need_gradient,
                        .gradient = c.in_place ? nullptr : gradient.data(),
                        .gradient_type = c.type,
                        .row_loss = losses.floats(),
                        .row_scale = c.scales_rows ? factors : nullptr,
                        .top_k = c.top_k,
                        .teacher = teacher,
                        .target_weight = c.target_weight,
                        .beta = c.beta};
  };
  Array cpu_logits = logits, gradient(c.type, c.rows * c.vocabulary), losses(Scalar::F32, c.rows);
  Array at_teachers(Scalar::F32, c.rows * c.top_k);
  CrossEntropy on_cpu =
      args(cpu_logits, gradient, targets.data(), losses, factors.floats(), teacher.data());
  cpu::teachers_logits(on_cpu, at_teachers.floats());
  on_cpu.at_teachers = at_teachers.floats();
  const auto whole = cpu::cross_entropy(on_cpu);
  over_seeds([&] {
    DeviceArray dev_logits(logits), dev_losses(Scalar::F32, c.rows);
    DeviceArray dev_gradient(c.type, c.rows * c.vocabulary);
    DeviceVector<int32_t> dev_targets(targets);
    DeviceVector<cuda::CrossEntropyTotals> totals({{1.5, 2}});
    DeviceArray dev_factors(factors);
    DeviceVector<float> dev_teacher(teacher);
    DeviceArray dev_at_teachers(Scalar::F32, c.rows * c.top_k);
    CrossEntropy a = args(dev_logits, dev_gradient, dev_targets.data(), dev_losses,
                          dev_factors.floats(), dev_teacher.data());
    cuda::teachers_logits(a, dev_at_teachers.floats(), kStream);
    EXPECT_TRUE(dev_at_teachers == at_teachers);
    a.at_teachers = dev_at_teachers.floats();
    Workspace workspace(cuda::cross_entropy_workspace_bytes(a));
    cuda::cross_entropy(a, totals.data(), workspace.data(), kStream);
    EXPECT_NEAR(totals.values[0].loss_sum, 1.5 + whole.loss_sum, 1e-4);
    EXPECT_EQ(totals.values[0].count, 2 + whole.count);
    if (c.rows > 0) expect_close(dev_losses, losses, "losses", 1e-5);
    if (!c.need_gradient) {
      EXPECT_TRUE(dev_logits == logits);
    } else if (c.in_place) {
      for (int64_t r = 0; r < c.rows; ++r)
        for (int64_t i = 0; i < stride; ++i)
          ASSERT_NEAR(dev_logits[r * stride + i],
                      i < c.vocabulary ? cpu_logits[r * stride + i] : logits[r * stride + i], 1e-6)
              << r << ", " << i;
    } else {
      expect_close(dev_gradient, gradient, "gradient", 1e-6);
      EXPECT_TRUE(dev_logits == logits);
    }
  });
}

TEST(SimulatedCrossEntropy, IsTheCpus) {
  for (const int64_t vocabulary : {1, 5, 33, 257, 3000}) {
    expect_cross_entropy({4, vocabulary, 0, 0, 0, true, true, Scalar::F32});
    expect_cross_entropy({5, vocabulary, 3, 0.1f, 1e-4f, true, true, Scalar::F32});
    expect_cross_entropy({2, vocabulary, 1, 0.1f, 0, false, true, Scalar::BF16});
    expect_cross_entropy({1, vocabulary, 0, 0, 1e-4f, false, true, Scalar::F16});
    expect_cross_entropy({3, vocabulary, 0, 0, 0, true, false, Scalar::F32});
    expect_cross_entropy({6, vocabulary, 2, 0.1f, 1e-4f, true, true, Scalar::F32, true});
    expect_cross_entropy({6, vocabulary, 0, 0, 0, false, true, Scalar::BF16, true});
  }
  expect_cross_entropy({0, 5, 0, 0, 0, true, true, Scalar::F32});
  expect_cross_entropy({600, 5, 0, 0, 0, true, true, Scalar::F32});  // more than add up at once
}

TEST(SimulatedCrossEntropy, WithATeacherIsTheCpus) {
  for (const auto& [vocabulary, top_k] : {std::pair<int64_t, int64_t>{5, 5}, {33, 4}, {3000, 300}})
    for (const float beta : {0.f, 0.5f, 1.f}) {
      expect_cross_entropy({.rows = 4,
                            .vocabulary = vocabulary,
                            .in_place = true,
                            .need_gradient = true,
                            .type = Scalar::F32,
                            .top_k = top_k,
                            .beta = beta,
                            .target_weight = 0.5f});
      expect_cross_entropy({.rows = 6,
                            .vocabulary = vocabulary,
                            .need_gradient = true,
                            .type = Scalar::BF16,
                            .top_k = top_k,
                            .beta = beta,
                            .target_weight = 0});
    }
}

TEST(SimulatedCrossEntropy, OfATargetOutsideIsNaN) {
  DeviceArray logits(random_array(Scalar::F32, 8, 1));
  DeviceVector<int32_t> targets({8});
  DeviceVector<cuda::CrossEntropyTotals> totals({{0, 0}});
  Workspace workspace(8);
  cuda::cross_entropy(
      {.rows = 1, .vocabulary = 8, .logits = logits.floats(), .targets = targets.data()},
      totals.data(), workspace.data(), kStream);
  EXPECT_TRUE(std::isnan(totals.values[0].loss_sum));
}

TEST(SimulatedCrossEntropy, OfPartsIsThatOfTheWhole) {
  const int64_t rows = 5, parts = 3, width = 70, vocabulary = parts * width;
  const Array logits = random_array(Scalar::F32, rows * vocabulary, 3, 4);
  const auto targets = targets_for(rows, vocabulary);
  const Array factors = random_array(Scalar::F32, rows, 8);
  for (const float smoothing : {0.f, 0.1f}) {
    Array gradient = logits, own_factors = factors;
    const auto whole = cpu::cross_entropy({.rows = rows,
                                           .vocabulary = vocabulary,
                                           .logits = gradient.floats(),
                                           .targets = targets.data(),
                                           .label_smoothing = smoothing,
                                           .z_loss = 1e-3f,
                                           .row_scale = own_factors.floats()});
    over_seeds([&] {
      DeviceArray all(logits);
      DeviceVector<int32_t> dev_targets(targets);
      DeviceArray dev_factors(factors), losses(Scalar::F32, rows);
      DeviceVector<CrossEntropyPartSums> sums(std::vector<CrossEntropyPartSums>(parts * rows),
                                              false);
      const auto part = [&](int64_t p) {
        return CrossEntropy{.rows = rows,
                            .vocabulary = width,
                            .logits = all.floats() + p * width,
                            .logits_stride = vocabulary,
                            .targets = dev_targets.data(),
                            .label_smoothing = smoothing,
                            .z_loss = 1e-3f,
                            .row_loss = losses.floats(),
                            .row_scale = dev_factors.floats(),
                            .first = p * width,
                            .whole_vocabulary = vocabulary};
      };
      for (int64_t p = 0; p < parts; ++p)
        cuda::cross_entropy_part_sums(part(p), sums.data() + p * rows, kStream);
      for (int64_t p = 0; p < parts; ++p) {
        DeviceVector<cuda::CrossEntropyTotals> totals({{0, 0}});
        Workspace workspace(cuda::cross_entropy_workspace_bytes(part(p)));
        cuda::cross_entropy_of_parts(part(p), sums.data(), parts, totals.data(), workspace.data(),
                                     kStream);
        EXPECT_NEAR(totals.values[0].loss_sum, whole.loss_sum, 1e-4);
        EXPECT_EQ(totals.values[0].count, whole.count);
      }
      expect_close(all, gradient, "gradient", 1e-6);
    });
  }
}

TEST(SimulatedDequantize, HasTheCpusBits) {
  for (int f = 0; f < kNumFormats; ++f) {
    const auto format = static_cast<QuantizedFormat>(f);
    const int64_t rows = 7, cols = 301;
    const Array weight = random_array(Scalar::F32, rows * cols, 5);
    std::vector<uint32_t> words(static_cast<size_t>(quantized_bytes(format, rows, cols) / 4));
    cpu::Quantizer quantizer(format, rows, cols, words.data());
    quantizer.add(weight.data(), Scalar::F32, rows * cols);
    quantizer.finish();
    const auto matrix = quantized_matrix(format, rows, cols, words.data());
    struct Range {
      int64_t begin, count;
    };
    for (const auto [begin, count] : {Range{0, rows * cols}, Range{0, 0}, Range{3, 1},
                                      Range{301, 602}, Range{4, 2000}, Range{2100, 7}}) {
      for (const Scalar type : kAllTypes) {
        Array expected(type, count);
        cpu::dequantize(matrix, begin, count, expected.data(), type);
        over_seeds([&] {
          DeviceVector<uint32_t> bytes(words);
          DeviceArray out(type, count);
          cuda::dequantize({.format = format,
                            .rows = rows,
                            .cols = cols,
                            .bytes = reinterpret_cast<const uint8_t*>(bytes.data()),
                            .begin = begin,
                            .count = count,
                            .out = out.data(),
                            .type = type},
                           kStream);
          expect_equal(out, expected, traits(format).name);
        });
      }
    }
  }
}

TEST(SimulatedDropout, HasTheCpusMask) {
  for (const Scalar type : kAllTypes) {
    for (const int64_t count : {0, 1, 6, 1030}) {
      for (const int shift : {0, 1}) {
        for (const bool accumulate : {false, true}) {
          for (const bool window : {false, count % 2 == 0}) {
            const Array x = random_array(type, count, 1, 1, shift);
            const Array before = random_array(type, count, 2, 1, shift);
            Dropout args{.type = type,
                         .count = count,
                         .probability = 0.3,
                         .key = 99,
                         .accumulate = accumulate};
            args.first_index = window ? 0 : 5;
            if (window) {
              args.columns = 2;
              args.first_column = 11;
              args.whole_columns = 5;
              args.places = {.stretch = 100, .first = 7, .second = 900};
            }
            Array expected = before;
            args.x = x.data();
            args.out = expected.data();
            cpu::dropout(args);
            over_seeds([&] {
              DeviceArray in(x), out(before, accumulate);
              args.x = in.data();
              args.out = out.data();
              cuda::dropout(args, kStream);
              accumulate ? expect_close(out, expected, "sum") : expect_equal(out, expected, "out");
            });
          }
        }
      }
    }
  }
}

// Ids that occur once, a few times, and so often that they are summed in segments.
std::vector<int32_t> ids_for(int64_t tokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i)
    ids.push_back(static_cast<int32_t>(i % 2 == 0 ? 3 : i % 5 == 0 ? 7 : i * 13 % 19));
  return ids;
}

TEST(SimulatedEmbedding, IsTheCpus) {
  for (const Scalar type : kAllTypes) {
    for (const Scalar grad_type : {Scalar::F32, type}) {
      for (const int64_t tokens : {0, 1, 63, 129, 700}) {
        for (const int64_t dim : {1, 37}) {
          for (const bool part : {false, true}) {
            const int64_t rows = part ? 9 : 19, first = part ? 4 : 0, whole = part ? 19 : 0;
            const auto ids = ids_for(tokens);
            const Array weight = random_array(type, rows * dim, 1);
            const Array dy = random_array(type, tokens * dim, 2);
            const Array before = random_array(grad_type, rows * dim, 3);
            Array out(type, tokens * dim), grad = before;
            cpu::embedding_forward(
                {type, tokens, rows, first, whole, dim, ids.data(), weight.data(), out.data()});
            const int32_t padding = tokens % 2 == 0 ? 7 : -1;
            cpu::embedding_backward({type, grad_type, tokens, rows, first, whole, dim, ids.data(),
                                     padding, dy.data(), grad.data()});
            over_seeds([&] {
              DeviceArray dev_weight(weight), dev_out(type, tokens * dim), dev_dy(dy);
              DeviceArray dev_grad(before);
              DeviceVector<int32_t> dev_ids(ids);
              cuda::embedding_forward({type, tokens, rows, first, whole, dim, dev_ids.data(),
                                       dev_weight.data(), dev_out.data()},
                                      kStream);
              expect_equal(dev_out, out, "rows");
              const EmbeddingBackward args{
                  type, grad_type,      tokens,  rows,          first,          whole,
                  dim,  dev_ids.data(), padding, dev_dy.data(), dev_grad.data()};
              Workspace workspace(cuda::embedding_backward_workspace_bytes(args));
              cuda::embedding_backward(args, workspace.data(), kStream);
              expect_close(dev_grad, grad, "gradient", 1e-4);  // sums of hundreds
            });
          }
        }
      }
    }
  }
}

TEST(SimulatedPictures, AreTheCpusPatches) {
  // One row and two columns fill no patch.
  constexpr int64_t kHeight = 7, kWidth = 11;
  std::vector<uint8_t> pixels(2 * kHeight * kWidth * 3);
  std::iota(pixels.begin(), pixels.end(), uint8_t{0});
  for (const Scalar type : kAllTypes) {
    for (const int64_t pictures : {0, 1, 2}) {
      ImagePatches args{.type = type,
                        .pictures = pictures,
                        .height = kHeight,
                        .width = kWidth,
                        .patch_size = 3,
                        .mean = {0.4f, 0.5f, 0.6f},
                        .std = {0.2f, 0.3f, 0.25f}};
      Array expected(type, pictures * 6 * 9 * 3);
      args.pixels = pixels.data();
      args.out = expected.data();
      cpu::image_patches(args);
      over_seeds([&] {
        DeviceVector<uint8_t> on_device(pixels);
        DeviceArray out(type, expected.size());
        args.pixels = on_device.data();
        args.out = out.data();
        cuda::image_patches(args, kStream);
        expect_close(out, expected, "patches");
      });
    }
  }
}

TEST(SimulatedRope, IsTheCpus) {
  for (const Scalar type : kAllTypes) {
    for (const int64_t rotary : {0, 4}) {
      for (const auto direction : {RopeDirection::Forward, RopeDirection::Inverse}) {
        for (const int64_t tokens : {0, 1, 44, 45}) {
          const RopePairs paired = tokens % 2 == 0 ? RopePairs::Neighbours : RopePairs::Halves;
          const int64_t heads = 3, dim = 10, stride = heads * dim + 7,
                        half = (rotary ? rotary : dim) / 2;
          const Array x = random_array(type, tokens * stride, 1);
          const Array more = random_array(type, tokens * dim, 4);
          const Array cos = random_array(Scalar::F32, 50 * half, 2),
                      sin = random_array(Scalar::F32, 50 * half, 3);
          std::vector<int32_t> positions;
          for (int64_t t = 0; t < tokens; ++t)
            positions.push_back(static_cast<int32_t>(t * 7 % 50));
          RopeApply args{.type = type,
                         .tokens = tokens,
                         .heads = heads,
                         .head_dim = dim,
                         .rotary_dim = rotary,
                         .paired = paired,
                         .token_stride = stride,
                         .more_heads = tokens > 1 ? 1 : 0,
                         .max_positions = 50,
                         .direction = direction};
          Array expected = x, expected_more = more;
          args.x = expected.data();
          args.more_x = expected_more.data();
          args.positions = positions.data();
          args.cos = static_cast<const float*>(cos.data());
          args.sin = static_cast<const float*>(sin.data());
          cpu::rope_apply(args);
          over_seeds([&] {
            DeviceArray dev_x(x), dev_more(more), dev_cos(cos), dev_sin(sin);
            DeviceVector<int32_t> dev_positions(positions);
            args.x = dev_x.data();
            args.more_x = dev_more.data();
            args.positions = dev_positions.data();
            args.cos = dev_cos.floats();
            args.sin = dev_sin.floats();
            cuda::rope_apply(args, kStream);
            expect_close(dev_x, expected, "turned");
            expect_close(dev_more, expected_more, "turned beside it");
          });
        }
      }
    }
  }
}

// A block's shape, and which of the rest it has.
struct ScoresCase {
  int64_t documents, rows, keys, first_distance;
  bool causal;
  int64_t window;
  bool bias;
  float cap;
  double dropout;
  std::vector<int32_t> query_borders = {}, key_borders = {};
};

TEST(SimulatedAttentionScores, AreTheCpus) {
  const int64_t heads = 3, buckets = 8, most = 6;
  const ScoresCase cases[] = {
      {1, 1, 1, 0, true, 0, false, 0, 0},
      {1, 5, 37, -32, true, 0, true, 0, 0.3},
      {3, 4, 129, -60, false, 0, true, 0, 0.2},
      {1, 7, 300, -200, true, 33, false, 1.5F, 0},
      {2, 6, 6, 0, false, 3, false, 0, 0.5},
      {0, 4, 4, 0, true, 0, false, 0, 0},
      {3, 8, 16, 0, false, 0, true, 0, 0.3, {5, 6, 14, 14}, {0, 16, 17, 20}},
      {2, 8, 8, 0, true, 0, false, 1.5F, 0, {2, 5, 13}, {2, 5, 13}}};
  for (const ScoresCase& c : cases) {
    const int64_t rows = c.documents * heads * c.rows, count = rows * c.keys;
    const int64_t lse_stride = c.documents * c.rows + 3;
    const Array products = random_array(Scalar::F32, count, 1),
                arriving = random_array(Scalar::F32, count, 2);
    const Array delta = random_array(Scalar::F32, rows, 3);
    const Array table = random_array(Scalar::F32, buckets * heads, 4);
    std::vector<int32_t> bucket_of;
    for (int64_t i = 0; i <= 2 * most; ++i)
      bucket_of.push_back(static_cast<int32_t>(i * 5 % buckets));
    AttentionScores args{.documents = c.documents,
                         .heads = heads,
                         .rows = c.rows,
                         .keys = c.keys,
                         .lse_stride = lse_stride,
                         .scale = 0.7F,
                         .cap = c.cap,
                         .first_distance = c.first_distance,
                         .causal = c.causal,
                         .sliding_window = c.window,
                         .num_buckets = buckets,
                         .max_distance = most,
                         .dropout = {.probability = c.dropout,
                                     .key = 0xfedcba9876543210,
                                     .first_head = 2,
                                     .first_row = 11,
                                     .num_rows = 900},
                         .first_column = 4};
    DeviceVector<int32_t> dev_queries(c.query_borders), dev_keys(c.key_borders);
    const auto with = [&](Array& scores, Array& lse, const Array& biases, const int32_t* of) {
      AttentionScores own = args;
      const bool on_device = of != bucket_of.data();
      if (!c.query_borders.empty()) {
        own.query_borders = on_device ? dev_queries.data() : c.query_borders.data();
        own.key_borders = on_device ? dev_keys.data() : c.key_borders.data();
      }
      own.scores = static_cast<float*>(scores.data());
      own.lse = static_cast<float*>(lse.data());
      own.bias = c.bias ? static_cast<const float*>(biases.data()) : nullptr;
      own.bias_buckets = of;
      return own;
    };
    const auto floats = [](const Array& x) { return static_cast<const float*>(x.data()); };
    Array p = products, lse = random_array(Scalar::F32, heads * lse_stride, 5);
    const Array lse_before = lse;
    cpu::attention_softmax(with(p, lse, table, bucket_of.data()));
    Array again(Scalar::F32, count), d = products,
                                     sums = random_array(Scalar::F32, heads * buckets, 6);
    const Array sums_before = sums;
    Array same = products;
    cpu::attention_probabilities(with(same, lse, table, bucket_of.data()),
                                 static_cast<float*>(again.data()));
    expect_close(again, p, "probabilities from lse");
    cpu::attention_scores_backward(with(d, lse, table, bucket_of.data()), floats(arriving),
                                   floats(delta));
    if (c.bias)
      cpu::attention_bias_backward(with(d, lse, table, bucket_of.data()),
                                   static_cast<float*>(sums.data()));
    over_seeds([&] {
      DeviceArray dev_p(products), dev_lse(lse_before), dev_table(table);
      DeviceVector<int32_t> dev_buckets(bucket_of);
      cuda::attention_softmax(with(dev_p, dev_lse, dev_table, dev_buckets.data()), kStream);
      expect_close(dev_p, p, "probabilities");
      expect_close(dev_lse, lse, "lse");
      DeviceArray dev_d(products), dev_again(Scalar::F32, count), dev_arriving(arriving),
          dev_delta(delta);
      const AttentionScores backward = with(dev_d, dev_lse, dev_table, dev_buckets.data());
      cuda::attention_probabilities(backward, static_cast<float*>(dev_again.data()), kStream);
      expect_close(dev_again, p, "probabilities from lse");
      cuda::attention_scores_backward(backward, floats(dev_arriving), floats(dev_delta), kStream);
      expect_close(dev_d, d, "gradient");
      if (!c.bias) return;
      DeviceArray dev_sums(sums_before);
      cuda::attention_bias_backward(backward, static_cast<float*>(dev_sums.data()), kStream);
      expect_close(dev_sums, sums, "gradient of the biases", 1e-4);
    });
  }
}

// Rows that are parts of longer ones; more of them than a block has lanes; totals that are added to
// and round once. (On the CPU it is a product.)
TEST(SimulatedSumOfRows, IsTheSum) {
  for (const Scalar type : kAllTypes)
    for (const Scalar total_type : {Scalar::F32, type})
      for (const int64_t rows : {0, 1, 5, 130})
        for (const int64_t dim : {1, 16, 37})
          for (const bool accumulate : {false, true}) {
            const int64_t stride = dim + 3;
            const Array x = random_array(type, rows * stride, 1);
            const Array before = random_array(total_type, dim, 2);
            std::vector<double> sums(static_cast<size_t>(dim));
            for (int64_t i = 0; i < dim; ++i) {
              double sum = accumulate ? before[i] : 0;
              for (int64_t row = 0; row < rows; ++row) sum += x[row * stride + i];
              sums[static_cast<size_t>(i)] = sum;
            }
            over_seeds([&] {
              DeviceArray dev_x(x), total(before, accumulate);
              cuda::sum_of_rows(
                  {.type = type,
                   .rows = rows,
                   .dim = dim,
                   .row_stride = stride,
                   .x = dev_x.data(),
                   .total = {.data = total.data(), .type = total_type, .accumulate = accumulate}},
                  kStream);
              expect_close(total, Array(total_type, sums), "total", 1e-4);
            });
          }
}

// Tokens that are parts of longer ones, and arrays of different numbers of heads in one launch.
TEST(SimulatedHeadWidths, AreCopiesWithZerosOrWithoutEnds) {
  for (const Scalar type : kAllTypes)
    for (const auto& [from_dim, to_dim] : {std::pair{5, 8}, {8, 5}, {100, 104}, {104, 100}}) {
      const int64_t tokens = 3;
      const std::vector<int64_t> heads{4, 1, 2};
      over_seeds([&] {
        HeadWidths args{.type = type, .from_dim = from_dim, .to_dim = to_dim};
        std::deque<DeviceArray> from, to;
        for (size_t i = 0; i < heads.size(); ++i) {
          const int64_t stride = heads[i] * from_dim + 7;
          from.emplace_back(random_array(type, tokens * stride, static_cast<uint32_t>(i) + 1));
          to.emplace_back(type, tokens * heads[i] * to_dim);
          args.copies[i] = {.from = from.back().data(),
                            .from_stride = stride,
                            .to = to.back().data(),
                            .tokens = tokens,
                            .heads = heads[i]};
        }
        cuda::change_head_widths(args, kStream);
        for (size_t i = 0; i < heads.size(); ++i) {
          EXPECT_TRUE(to[i].guards_intact());
          for (int64_t at = 0; at < to[i].size(); ++at) {
            const int64_t head = at / to_dim, within = at % to_dim;
            const int64_t source =
                head / heads[i] * args.copies[i].from_stride + head % heads[i] * from_dim + within;
            ASSERT_EQ(to[i][at], within < from_dim ? from[i][source] : 0)
                << "array " << i << ", element " << at;
          }
        }
      });
    }
  cuda::change_head_widths({.from_dim = 4, .to_dim = 8}, kStream);
}

// There, back and added; documents of one length and of others, an empty one among them.
TEST(SimulatedHeadRows, AreTheCpus) {
  using Way = HeadRows::Way;
  const int64_t documents = 3, dim = 5, tokens = 12;
  const std::vector<int32_t> borders{2, 2, 5, 9};
  const std::vector<int64_t> heads{4, 2};
  for (const Scalar type : kAllTypes)
    for (const Way way : {Way::Read, Way::Write, Way::Add})
      for (const bool uneven : {false, true}) {
        over_seeds([&] {
          DeviceVector<int32_t> dev_borders(borders);
          HeadRows args{.way = way, .type = type, .documents = documents, .dim = dim};
          HeadRows on_device = args;
          std::deque<Array> own;
          std::deque<DeviceArray> there;
          for (size_t i = 0; i < heads.size(); ++i) {
            const int64_t stride = heads[i] * dim + 3;
            const Array in_tokens = random_array(type, tokens * stride, 1);
            const Array in_block = random_array(Scalar::F32, documents * heads[i] * 4 * dim, 2);
            const bool reads = way == Way::Read;
            own.push_back(reads ? in_tokens : in_block);
            own.push_back(reads ? in_block : in_tokens);
            there.emplace_back(own[2 * i]);
            there.emplace_back(own[2 * i + 1]);
            args.arrays[i] = {.from = own[2 * i].data(),
                              .to = own[2 * i + 1].data(),
                              .stride = stride,
                              .heads = heads[i],
                              .rows = 4,
                              .borders = uneven ? borders.data() : nullptr};
            on_device.arrays[i] = args.arrays[i];
            on_device.arrays[i].from = there[2 * i].data();
            on_device.arrays[i].to = there[2 * i + 1].data();
            if (uneven) on_device.arrays[i].borders = dev_borders.data();
          }
          cpu::move_head_rows(args);
          cuda::move_head_rows(on_device, kStream);
          for (size_t i = 0; i < own.size(); ++i) {
            EXPECT_TRUE(there[i].guards_intact());
            for (int64_t at = 0; at < own[i].size(); ++at)
              ASSERT_EQ(there[i][at], own[i][at]) << "array " << i << ", element " << at;
          }
        });
      }
  cuda::move_head_rows({.dim = 4}, kStream);
}

}  // namespace
}  // namespace snug::kernels::simulated
