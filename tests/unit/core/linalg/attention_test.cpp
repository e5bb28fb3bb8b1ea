// Attention, its gradients and decoding against plain loops in double: every (query, key) pair is
// visited and kept or dropped by the definition of who sees whom, so a mistake in skipping blocks
// shows.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/attention/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "testing.h"

namespace snug::kernels::cpu {
namespace attention_test {

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads, kv_heads, dim;
  Scalar type;
  int64_t window;
  bool causal;
  int64_t pad;  // between tokens, as where q, k and v are slices of one projection
  int threads;
  std::vector<int32_t> key_lengths = {};  // of another sequence's documents
  int64_t buckets = 0, max_distance = 0;
  Scalar bias_type = Scalar::F32;
  double dropout = 0;
  double cap = 0;

  static int64_t sum(const std::vector<int32_t>& list) {
    return std::accumulate(list.begin(), list.end(), int64_t{0});
  }
  int64_t tokens() const { return sum(lengths); }
  int64_t keys() const { return key_lengths.empty() ? tokens() : sum(key_lengths); }
  std::string text() const {
    return fmt::format(
        "lengths={} heads={}/{} dim={} {} window={} causal={} pad={} threads={} key_lengths={} "
        "buckets={}/{} {} dropout={} cap={}",
        fmt::join(lengths, ","), heads, kv_heads, dim, scalar_name(type), window, causal, pad,
        threads, fmt::join(key_lengths, ","), buckets, max_distance, scalar_name(bias_type),
        dropout, cap);
  }
};

std::vector<int32_t> starts_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts = {0};
  for (int32_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

// What ProbabilityDropout says of one probability.
bool keeps(const ProbabilityDropout& dropout, uint32_t row, uint32_t column) {
  uint32_t x = column ^ (static_cast<uint32_t>(dropout.key) + row * 0x9e3779b9u);
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= (x >> 15) ^ static_cast<uint32_t>(dropout.key >> 32);
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x >= dropout.threshold();
}

// (rows, heads, dim) numbers of a type, with `pad` elements after each row.
struct Tensor {
  Tensor(int64_t rows, int64_t heads, int64_t dim, Scalar t, int64_t pad = 0)
      : type(t),
        rows(rows),
        heads(heads),
        dim(dim),
        stride(heads * dim + pad),
        buffer(std::max<int64_t>(
            0, (rows ? (rows - 1) * stride + heads * dim : 0) * scalar_bytes(t))) {}
  int64_t count() const { return rows ? (rows - 1) * stride + heads * dim : 0; }
  double at(int64_t row, int64_t head, int64_t d) const {
    return read_number(buffer.data(), type, row * stride + head * dim + d);
  }
  std::vector<double> numbers() const {
    std::vector<double> values;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < heads * dim; ++i) {
        values.push_back(read_number(buffer.data(), type, row * stride + i));
      }
    }
    return values;
  }
  std::string bits() const { return {buffer.data(), size_t(count() * scalar_bytes(type))}; }

  Scalar type;
  int64_t rows, heads, dim, stride;
  GuardedBuffer buffer;
};

struct Problem {
  Problem(const Case& c, unsigned seed)
      : which(c),
        q(c.tokens(), c.heads, c.dim, c.type, c.pad),
        k(c.keys(), c.kv_heads, c.dim, c.type, c.pad),
        v(c.keys(), c.kv_heads, c.dim, c.type, c.pad),
        out(c.tokens(), c.heads, c.dim, c.type),
        d_out(c.tokens(), c.heads, c.dim, c.type),
        dq(c.tokens(), c.heads, c.dim, c.type),
        dk(c.keys(), c.kv_heads, c.dim, c.type),
        dv(c.keys(), c.kv_heads, c.dim, c.type),
        lse(c.heads, 1, c.tokens(), Scalar::F32),
        bias(c.buckets, c.heads, 1, c.bias_type),
        d_bias(c.buckets, c.heads, 1, Scalar::F32) {
    std::mt19937 random(seed);
    for (Tensor* t : {&q, &k, &v, &d_out}) fill(t->buffer.data(), c.type, t->count(), random);
    fill(bias.buffer.data(), bias.type, bias.count(), random);
    starts = starts_of(c.lengths);
    key_starts = c.key_lengths.empty() ? starts : starts_of(c.key_lengths);
    args = {.num_tokens = c.tokens(),
            .num_heads = c.heads,
            .num_kv_heads = c.kv_heads,
            .head_dim = c.dim};
    args.num_documents = int64_t(c.lengths.size());
    args.cu_seqlens = starts.data();
    args.type = c.type;
    args.q = q.buffer.data(), args.k = k.buffer.data(), args.v = v.buffer.data();
    args.q_stride = q.stride, args.k_stride = k.stride, args.v_stride = v.stride;
    args.scale = 1.f / std::sqrt(float(c.dim));
    args.sliding_window = c.window, args.causal = c.causal;
    if (!c.key_lengths.empty()) args.num_keys = c.keys(), args.kv_cu_seqlens = key_starts.data();
    args.bias = {.num_buckets = c.buckets,
                 .data = bias.buffer.data(),
                 .type = c.bias_type,
                 .max_distance = c.max_distance,
                 .both_directions = !c.causal};
    args.score_cap = float(c.cap);
    args.dropout = {.probability = c.dropout, .key = 0x123456789abcdefull + seed};
    args.out = out.buffer.data();
    args.lse = reinterpret_cast<float*>(lse.buffer.data());
    args.num_threads = c.threads;
  }

  void run_forward() {
    GuardedBuffer workspace(attention_workspace_bytes(args, false), 64);
    attention_forward(args, workspace.data());
  }
  void run_backward() {
    GuardedBuffer workspace(attention_workspace_bytes(args, true), 64);
    std::memset(workspace.data(), 0xff, size_t(attention_workspace_bytes(args, true)));
    attention_backward(
        {args, d_out.buffer.data(), dq.buffer.data(), dk.buffer.data(), dv.buffer.data(),
         which.buckets > 0 ? reinterpret_cast<float*>(d_bias.buffer.data()) : nullptr},
        workspace.data());
  }

  // Both counted in their document.
  bool sees(int64_t query, int64_t key) const {
    if (which.causal && key > query) return false;
    return which.window == 0 || std::abs(query - key) < which.window;
  }

  Case which;
  Tensor q, k, v, out, d_out, dq, dk, dv, lse, bias, d_bias;
  std::vector<int32_t> starts, key_starts;
  AttentionArgs args;
};

struct Expected {
  std::vector<double> out, lse, dq, dk, dv, d_bias;
  std::vector<double> q, k, v, d_out, bias;  // the inputs, without padding
  double d_score_terms = 0;  // what the largest gradient of a score is a sum of, without signs
  double d_bias_terms = 0;   // what the largest of d_bias is a sum of, without signs

  explicit Expected(const Problem& p) {
    const Case& c = p.which;
    const int64_t n = c.tokens();
    bias = p.bias.numbers();
    d_bias.resize(bias.size());
    q = p.q.numbers(), k = p.k.numbers(), v = p.v.numbers(), d_out = p.d_out.numbers();
    out.resize(size_t(n * c.heads * c.dim)), dq.resize(out.size());
    lse.resize(size_t(n * c.heads));
    dk.resize(size_t(c.keys() * c.kv_heads * c.dim)), dv.resize(dk.size());
    for (size_t doc = 0; doc < c.lengths.size(); ++doc) {
      for (int64_t head = 0; head < c.heads; ++head) {
        for (int64_t query = p.starts[doc]; query < p.starts[doc + 1]; ++query) {
          add_row(p, doc, head, query);
        }
      }
    }
  }

  void add_row(const Problem& p, size_t doc, int64_t head, int64_t query) {
    const Case& c = p.which;
    const int64_t begin = p.key_starts[doc], end = p.key_starts[doc + 1];
    const int64_t own = query - p.starts[doc];  // the query in its document
    const auto bucket = [&](int64_t key) {
      return size_t(relative_bucket(key - begin - own, p.args.bias) * c.heads + head);
    };
    const int64_t kv = head / (c.heads / c.kv_heads);
    const auto row = size_t((query * c.heads + head) * c.dim);
    std::vector<double> score(size_t(end - begin), -INFINITY), d_probability(score.size());
    std::vector<double> kept(score.size(), 1), terms(score.size(), 0), slope(score.size(), 1);
    double largest = -INFINITY, sum = 0, delta = 0;
    for (int64_t key = begin; key < end; ++key) {
      if (!p.sees(own, key - begin)) continue;
      const auto column = size_t((key * c.kv_heads + kv) * c.dim);
      double dot = 0, d_dot = 0;
      for (int64_t d = 0; d < c.dim; ++d) {
        dot += q[row + size_t(d)] * k[column + size_t(d)];
        d_dot += d_out[row + size_t(d)] * v[column + size_t(d)];
        terms[size_t(key - begin)] += std::abs(d_out[row + size_t(d)] * v[column + size_t(d)]);
      }
      double& logit = score[size_t(key - begin)];
      logit = dot * p.args.scale;
      if (c.buckets > 0) logit += bias[bucket(key)];
      if (c.cap > 0) {
        const double ratio = std::tanh(logit / c.cap);
        logit = c.cap * ratio;
        slope[size_t(key - begin)] = 1 - ratio * ratio;
      }
      largest = std::max(largest, logit);
      if (c.dropout > 0) {
        const bool stays =
            keeps(p.args.dropout, uint32_t(head * c.tokens() + query), uint32_t(key - begin));
        kept[size_t(key - begin)] = stays ? 1 / (1 - c.dropout) : 0;
      }
      d_probability[size_t(key - begin)] = d_dot * kept[size_t(key - begin)];
    }
    for (double s : score) sum += std::exp(s - largest);
    lse[size_t(head * c.tokens() + query)] = largest + std::log(sum);
    for (size_t j = 0; j < score.size(); ++j) {
      score[j] = std::exp(score[j] - largest) / sum;
      delta += score[j] * d_probability[j];
    }
    for (int64_t key = begin; key < end; ++key) {
      const double probability = score[size_t(key - begin)];
      if (probability == 0) continue;
      const double change = probability * (d_probability[size_t(key - begin)] - delta);
      const double d_score = change * slope[size_t(key - begin)] * p.args.scale;
      d_score_terms = std::max(
          d_score_terms, kept[size_t(key - begin)] * terms[size_t(key - begin)] * p.args.scale);
      if (c.buckets > 0) {
        d_bias[bucket(key)] += change;
        d_bias_terms += probability * kept[size_t(key - begin)] * terms[size_t(key - begin)];
      }
      const auto column = size_t((key * c.kv_heads + kv) * c.dim);
      for (size_t d = 0; d < size_t(c.dim); ++d) {
        out[row + d] += probability * kept[size_t(key - begin)] * v[column + d];
        dv[column + d] += probability * kept[size_t(key - begin)] * d_out[row + d];
        dq[row + d] += d_score * k[column + d];
        dk[column + d] += d_score * q[row + d];
      }
    }
  }
};

// Every stored operand is rounded to the type (`out` too, from which delta is taken), everything
// else is float32; errors are relative to the largest element, since sums cancel.
void expect_near(const Tensor& got, const std::vector<double>& want, double tolerance,
                 const std::string& what, double scale = 0.5) {
  for (double w : want) scale = std::max(scale, std::abs(w));
  double worst = -1;
  size_t place = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(read_number(got.buffer.data(), got.type, int64_t(i)) - want[i]);
    if (!(error <= worst)) worst = error, place = i;
  }
  if (want.empty()) return;
  EXPECT_LE(worst / scale, tolerance)
      << what << " element " << place << ": "
      << read_number(got.buffer.data(), got.type, int64_t(place)) << " instead of " << want[place];
}

void run_and_compare(const Case& c, unsigned seed) {
  SCOPED_TRACE(c.text());
  Problem p(c, seed);
  p.run_forward();
  const Expected expected(p);
  const double rounding = unit_roundoff(c.type);
  expect_near(p.out, expected.out, 2 * rounding + 40 * 0x1p-24, "out");
  expect_near(p.lse, expected.lse, 40 * 0x1p-24, "lse");
  p.run_backward();
  // Where a row sees one key, nothing is left of its terms but what the output's rounding made.
  const double least = std::max(0.5, expected.d_score_terms / 8);
  expect_near(p.dq, expected.dq, 4 * rounding + 200 * 0x1p-24, "dq", least);
  expect_near(p.dk, expected.dk, 4 * rounding + 200 * 0x1p-24, "dk", least);
  expect_near(p.dv, expected.dv, 2 * rounding + 200 * 0x1p-24, "dv");
  // Whatever the output's rounding did to delta is in all of a bucket's sum.
  expect_near(p.d_bias, expected.d_bias, 2 * rounding + 40 * 0x1p-24, "d_bias",
              std::max(0.5, expected.d_bias_terms / double(std::max<int64_t>(1, c.heads))));
}

Case random_case(std::mt19937& random) {
  auto pick = [&](auto... options) {
    const int64_t list[] = {int64_t(options)...};
    return list[random() % std::size(list)];
  };
  Case c{};
  for (int64_t documents = pick(1, 1, 2, 4); documents > 0; --documents) {
    c.lengths.push_back(
        int32_t(pick(1, random() % 10, random() % 80, random() % 150, 60 + random() % 200)));
  }
  c.kv_heads = pick(1, 2, 3);
  c.heads = c.kv_heads * pick(1, 1, 2, 3, 8);
  c.dim = pick(64, 64, 16, 8, 80, 88, 100, 128, 5, 33, 256, 512);
  c.type = Scalar(random() % 3);
  c.window = pick(0, 0, 1, 7, 40, 100);
  c.causal = random() % 4 != 0;
  c.pad = pick(0, 0, 3, 192);
  c.threads = int(pick(1, 2, 5));
  if (random() % 4 == 0) {
    c.causal = false, c.window = 0;
    for (size_t i = 0; i < c.lengths.size(); ++i) {
      // Not one alone, whose gradient is nothing but what rounding leaves.
      c.key_lengths.push_back(int32_t(pick(2, 2 + random() % 80, 2 + random() % 300)));
    }
  }
  c.buckets = pick(0, 0, 8, 32), c.max_distance = pick(20, 128);
  c.bias_type = Scalar(random() % 3);
  c.dropout = random() % 3 == 0 ? 0.3 : 0;
  return c;
}

class AttentionOn : public testing::TestWithParam<NamedKernels> {};

TEST_P(AttentionOn, RandomShapesMatchDouble) {
  ScopedKernels scope(*GetParam().kernels);
  std::mt19937 random(77);
  for (int i = 0; i < 80 && !HasFailure(); ++i) run_and_compare(random_case(random), unsigned(i));
}

TEST_P(AttentionOn, ManyKeyBlocksAndTiles) {
  ScopedKernels scope(*GetParam().kernels);
  run_and_compare({{700}, 3, 1, 32, Scalar::F32, 0, true, 0, 3}, 1);
  run_and_compare({{700}, 1, 1, 32, Scalar::F32, 130, true, 0, 3}, 2);
  run_and_compare({{300, 1, 300}, 1, 1, 32, Scalar::BF16, 130, false, 0, 2}, 3);
  run_and_compare({{200, 40}, 4, 2, 512, Scalar::F32, 0, true, 0, 2}, 4);
}

// Documents longer than the farthest distance that has a bucket of its own, many queries to few
// keys and few to many, and documents that have keys alone.
TEST_P(AttentionOn, BiasesDropoutAndOtherKeys) {
  ScopedKernels scope(*GetParam().kernels);
  Case c{{600, 30}, 2, 2, 32, Scalar::F32, 0, true, 0, 3};
  c.buckets = 32, c.max_distance = 128;
  run_and_compare(c, 1);
  c.causal = false;
  run_and_compare(c, 2);
  c.dropout = 0.1;
  run_and_compare(c, 3);
  c.lengths = {300, 2, 0, 1}, c.key_lengths = {3, 600, 17, 257};
  run_and_compare(c, 4);
  c.buckets = 0, c.dropout = 0;
  run_and_compare(c, 5);
}

// Covers every type, with caps that most scores are near, over several blocks.
TEST_P(AttentionOn, CappedScores) {
  ScopedKernels scope(*GetParam().kernels);
  for (const Scalar type : {Scalar::F32, Scalar::BF16, Scalar::F16})
    for (const double cap : {0.5, 1.0, 3.0}) {
      Case c{{3, 22, 223, 77}, 6, 2, 100, type, 0, true, 3, 2};
      c.cap = cap;
      run_and_compare(c, 1);
      c.window = 40, c.dropout = 0.3;
      run_and_compare(c, 2);
      c.window = 0, c.causal = false, c.key_lengths = {30, 7, 300, 2};
      run_and_compare(c, 3);
    }
}

// Heads of a vision transformer: 16 by 88 elements over 257 patches.
TEST_P(AttentionOn, VisionTransformer) {
  ScopedKernels scope(*GetParam().kernels);
  run_and_compare({{257, 257}, 3, 3, 88, Scalar::F32, 0, false, 3 * 88, 2}, 1);
  run_and_compare({{257, 257}, 3, 3, 88, Scalar::BF16, 0, false, 0, 2}, 2);
}

TEST_P(AttentionOn, SameBitsForAnyNumberOfThreads) {
  ScopedKernels scope(*GetParam().kernels);
  Case plain{{513, 40}, 6, 2, 64, Scalar::F32, 0, true, 0, 1};
  Case full = plain;
  full.buckets = 32, full.max_distance = 128, full.dropout = 0.2;
  Case other = full;
  other.causal = false, other.key_lengths = {30, 700};
  for (Case c : {plain, full, other}) {
    std::vector<std::string> first;
    for (int threads : {1, 2, 2, 7}) {
      c.threads = threads;
      Problem p(c, 5);
      p.run_forward();
      p.run_backward();
      std::vector<std::string> bits;
      for (const Tensor* t : {&p.out, &p.lse, &p.dq, &p.dk, &p.dv, &p.d_bias}) {
        bits.push_back(t->bits());
      }
      if (first.empty()) first = bits;
      EXPECT_TRUE(bits == first) << c.text();
    }
  }
}

// The share that is dropped is what was asked for, and no two rows, heads or keys drop alike.
TEST_P(AttentionOn, DropoutDropsItsShare) {
  ScopedKernels scope(*GetParam().kernels);
  Case c{{64}, 4, 1, 64, Scalar::F32, 0, false, 0, 1};
  c.dropout = 0.25;
  Problem p(c, 3);
  // Equal scores, and values that are the rows of the unit matrix: the output is probabilities.
  std::fill_n(reinterpret_cast<float*>(p.q.buffer.data()), p.q.count(), 0.f);
  for (int64_t i = 0; i < 64 * 64; ++i) {
    reinterpret_cast<float*>(p.v.buffer.data())[i] = i / 64 == i % 64 ? 1.f : 0.f;
  }
  p.run_forward();
  int64_t dropped = 0;
  std::vector<std::string> rows;
  for (int64_t row = 0; row < 64; ++row) {
    for (int64_t head = 0; head < 4; ++head) {
      std::string kept;
      for (int64_t key = 0; key < 64; ++key) {
        const double probability = p.out.at(row, head, key);
        if (probability != 0) {
          EXPECT_NEAR(probability, 1 / 0.75 / 64, 1e-7);
        }
        kept += probability == 0 ? '0' : '1';
      }
      dropped += std::count(kept.begin(), kept.end(), '0');
      rows.push_back(kept);
    }
  }
  // 16384 draws: five standard deviations of a binomial's share.
  EXPECT_NEAR(double(dropped) / 16384, 0.25, 5 * std::sqrt(0.25 * 0.75 / 16384));
  std::sort(rows.begin(), rows.end());
  EXPECT_TRUE(std::adjacent_find(rows.begin(), rows.end()) == rows.end());
}

// A document's results have the same bits whatever its neighbours hold, even if that is not a
// number.
TEST_P(AttentionOn, DocumentsAreIsolated) {
  ScopedKernels scope(*GetParam().kernels);
  const Case c{{50, 70, 90}, 2, 1, 64, Scalar::F32, 0, true, 0, 1};
  Problem plain(c, 9), poisoned(c, 9);
  for (Tensor* t : {&poisoned.q, &poisoned.k, &poisoned.v, &poisoned.d_out}) {
    auto* data = reinterpret_cast<float*>(t->buffer.data());
    std::fill_n(data, 50 * t->stride, NAN);
    std::fill_n(data + 120 * t->stride, 90 * t->stride, NAN);
  }
  for (Problem* p : {&plain, &poisoned}) p->run_forward(), p->run_backward();
  const auto middle = [](const Tensor& t) {
    return t.bits().substr(size_t(50 * t.stride * 4), size_t(70 * t.stride * 4));
  };
  EXPECT_TRUE(middle(plain.out) == middle(poisoned.out));
  EXPECT_TRUE(middle(plain.dq) == middle(poisoned.dq));
  EXPECT_TRUE(middle(plain.dk) == middle(poisoned.dk));
  EXPECT_TRUE(middle(plain.dv) == middle(poisoned.dv));
  EXPECT_TRUE(std::isnan(poisoned.out.at(10, 0, 0)));
}

// Scores of a few thousands, where exp overflows unless the maximum is taken off first.
TEST_P(AttentionOn, LargeScoresStayFinite) {
  ScopedKernels scope(*GetParam().kernels);
  Problem p({{200}, 1, 1, 64, Scalar::F32, 0, true, 0, 1}, 4);
  p.args.scale = 100.f;
  p.run_forward();
  p.run_backward();
  for (const Tensor* t : {&p.out, &p.dq, &p.dk, &p.dv}) {
    for (int64_t i = 0; i < t->count(); ++i) {
      ASSERT_TRUE(std::isfinite(read_number(t->buffer.data(), t->type, i)));
    }
  }
}

// dL/dx of L = sum(d_out * out), by central differences of the forward pass.
TEST_P(AttentionOn, GradientsMatchFiniteDifferences) {
  ScopedKernels scope(*GetParam().kernels);
  Case c{{37, 20}, 4, 2, 16, Scalar::F32, 0, true, 0, 1};
  c.buckets = 8, c.max_distance = 20, c.dropout = 0.2;
  Problem p(c, 6);
  p.run_forward();
  p.run_backward();
  auto loss = [&] {
    p.run_forward();
    double sum = 0;
    for (int64_t i = 0; i < p.out.count(); ++i) {
      sum += read_number(p.out.buffer.data(), Scalar::F32, i) *
             read_number(p.d_out.buffer.data(), Scalar::F32, i);
    }
    return sum;
  };
  const std::pair<Tensor*, Tensor*> pairs[] = {
      {&p.q, &p.dq}, {&p.k, &p.dk}, {&p.v, &p.dv}, {&p.bias, &p.d_bias}};
  for (const auto& [x, dx] : pairs) {
    for (int64_t i = 3; i < x->count(); i += x == &p.bias ? 5 : 101) {
      auto& value = reinterpret_cast<float*>(x->buffer.data())[i];
      const float original = value, step = 1.f / 64;
      value = original + step;
      const double above = loss();
      value = original - step;
      const double below = loss();
      value = original;
      EXPECT_NEAR((above - below) / (2 * step), read_number(dx->buffer.data(), Scalar::F32, i),
                  2e-2);
    }
  }
}

TEST_P(AttentionOn, DecodingEqualsTheLastRow) {
  ScopedKernels scope(*GetParam().kernels);
  for (Scalar type : {Scalar::F32, Scalar::BF16}) {
    for (int64_t window : {0, 9}) {
      for (int64_t length : {1, 17, 512, 1300}) {
        Case c{{int32_t(length)}, 6, 2, 80, type, window, true, 0, 2};
        c.buckets = length % 2 == 1 ? 32 : 0, c.max_distance = 128, c.bias_type = type;
        Problem p(c, unsigned(length));
        p.run_forward();
        const auto last = int32_t(length);
        Tensor out(1, 6, 80, type);
        DecodeAttentionArgs decode{
            .num_sequences = 1, .num_heads = 6, .num_kv_heads = 2, .head_dim = 80};
        decode.type = type;
        decode.q = p.q.buffer.data() + (length - 1) * p.q.stride * scalar_bytes(type);
        decode.k_cache = p.k.buffer.data(), decode.v_cache = p.v.buffer.data();
        decode.token_stride = p.k.stride;
        decode.lengths = &last;
        decode.scale = p.args.scale, decode.sliding_window = window, decode.bias = p.args.bias;
        decode.out = out.buffer.data();
        decode.num_threads = 2;
        GuardedBuffer workspace(decode_attention_workspace_bytes(decode), 64);
        decode_attention(decode, workspace.data());
        for (int64_t head = 0; head < 6; ++head) {
          for (int64_t d = 0; d < 80; ++d) {
            ASSERT_NEAR(out.at(0, head, d), p.out.at(length - 1, head, d),
                        2 * unit_roundoff(type) * 2 + 1e-6)
                << length << " " << window;
          }
        }
      }
    }
  }
}

// Two sequences of different length in one cache with room to grow.
TEST_P(AttentionOn, DecodingKeepsSequencesApart) {
  ScopedKernels scope(*GetParam().kernels);
  Problem p({{600, 600}, 2, 1, 64, Scalar::F32, 0, true, 0, 1}, 8);
  p.run_forward();
  const int32_t lengths[] = {600, 31};
  Tensor q(2, 2, 64, Scalar::F32), out(2, 2, 64, Scalar::F32);
  const int64_t row = p.q.stride * 4;
  std::memcpy(q.buffer.data(), p.q.buffer.data() + 599 * row, size_t(row));
  std::memcpy(q.buffer.data() + row, p.q.buffer.data() + 630 * row, size_t(row));
  DecodeAttentionArgs decode{.num_sequences = 2, .num_heads = 2, .num_kv_heads = 1, .head_dim = 64};
  decode.q = q.buffer.data();
  decode.k_cache = p.k.buffer.data(), decode.v_cache = p.v.buffer.data();
  decode.sequence_stride = 600 * p.k.stride, decode.token_stride = p.k.stride;
  decode.lengths = lengths;
  decode.scale = p.args.scale;
  decode.out = out.buffer.data();
  GuardedBuffer workspace(decode_attention_workspace_bytes(decode), 64);
  decode_attention(decode, workspace.data());
  for (int64_t d = 0; d < 64; ++d) {
    EXPECT_NEAR(out.at(0, 1, d), p.out.at(599, 1, d), 1e-6);
    EXPECT_NEAR(out.at(1, 1, d), p.out.at(630, 1, d), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionOn, testing::ValuesIn(runnable_kernels()),
                         [](const auto& info) { return info.param.name; });

TEST(Attention, WorkspaceIsLinearInTokens) {
  std::vector<int32_t> starts = {0, 1 << 14};
  AttentionArgs args{.num_tokens = 1 << 14, .num_heads = 8, .num_kv_heads = 2, .head_dim = 64};
  args.num_documents = 1;
  args.cu_seqlens = starts.data();
  args.num_threads = 2;
  EXPECT_LT(attention_workspace_bytes(args, false), 2 << 20);
  const int64_t bytes = attention_workspace_bytes(args, true);
  starts[1] *= 2, args.num_tokens *= 2;
  EXPECT_LE(attention_workspace_bytes(args, true), 2 * bytes);
}

TEST(Attention, RefusesWhatItCannotDo) {
  Problem p({{4}, 3, 1, 16, Scalar::F32, 0, true, 0, 1}, 1);
  p.args.num_kv_heads = 2;
  EXPECT_THROW(attention_forward(p.args, nullptr), InternalError);
  p.args.num_kv_heads = 1, p.args.head_dim = 513;
  EXPECT_THROW(attention_forward(p.args, nullptr), InternalError);
  p.args.head_dim = 16, p.starts.back() = 3;
  EXPECT_THROW(attention_forward(p.args, nullptr), InternalError);
}

TEST(Attention, RefusesKeysOfAnotherSequenceInOrder) {
  Case c{{4, 4}, 1, 1, 16, Scalar::F32, 0, true, 0, 1};
  c.key_lengths = {3, 3};
  Problem p(c, 1);
  EXPECT_THROW(attention_forward(p.args, nullptr), InternalError);
  p.args.causal = false, p.key_starts[1] = 0;
  EXPECT_THROW(attention_forward(p.args, nullptr), InternalError);
}

}  // namespace attention_test
}  // namespace snug::kernels::cpu
