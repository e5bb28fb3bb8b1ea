// Random recipes on random models, a process each: a few steps on the test device against the same
// steps on the CPU without techniques. Losses and weights are equal within the precision's
// roundings; the plan is what the ledger and libtorch's allocator count, to the byte; nothing stays
// live. Some have an allocation refused first, which must change nothing. Where the device is a
// simulated GPU, another schedule of its streams gives the same bits, and a fault of its is a
// failure.
//
// SNUG_SOAK=FIRST:COUNT says which seeds; scripts/test draws some of the 10,000 from 10000 on.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/memory/disk_file.h"
#include "engine/exec/recorded_passes.h"
#include "plan/predict.h"
#include "recipe/techniques/technique.h"
#include "support/drawn_cases.h"
#include "support/random_recipe.h"
#include "support/unseen_rows.h"

namespace snug {
namespace {

using tests::TinyRun;

constexpr double kLearningRate = 1e-2;

// The nth allocation of a step, of the device or the host.
struct RefusedAllocation {
  int64_t nth = 0;  // 0: none
  int step = 0;
  memory::Ledger* ledger = nullptr;
};

struct Case {
  std::string shape;
  recipe::Recipe recipe;
  data::SampleStore samples;
  int steps = 0;
  RefusedAllocation refused;

  std::string text() const {
    return fmt::format(
        "{}{}{}{}, {} steps{}", tests::describe(recipe, shape),
        recipe.optimizer.stochastic_rounding ? ", rounded at random" : "",
        recipe.model.dropout ? fmt::format(", dropout {}", *recipe.model.dropout) : "",
        recipe.train.neftune_noise_alpha ? ", noise" : "", steps,
        refused.nth == 0 ? ""
                         : fmt::format(", allocation {} of step {} refused on {}", refused.nth,
                                       refused.step + 1, refused.ledger->device()));
  }
};

std::vector<std::string> all_shapes() {
  std::vector<std::string> shapes;
  for (const auto& entry :
       std::filesystem::directory_iterator(tests::source_dir() / "tests/data/parity"))
    if (std::filesystem::exists(entry.path() / "config.json"))
      shapes.push_back(entry.path().filename());
  std::ranges::sort(shapes);
  return shapes;
}

recipe::Recipe draw_recipe(std::mt19937& random, const std::string& shape) {
  recipe::Recipe recipe = tests::random_recipe(random);
  // Targets the second block, if there is one: the first number of a layer's name is its block's.
  constexpr size_t kUnitsOfOneBlock = 3;
  const bool is_deep = tests::tiny_model(shape)->units().size() > kUnitsOfOneBlock;
  if (!recipe.lora.target_modules.empty())
    recipe.lora.target_modules = is_deep ? R"([^0-9]*\.1\..*)" : "";
  tests::fit_to_stacks(recipe.lora, shape);
  if (recipe.activation_checkpointing == "1" && !is_deep) recipe.activation_checkpointing = "0";
  recipe.lora.use_rslora = recipe.lora.enabled && random() % 4 == 0;
  if (shape.starts_with("blip2") && random() % 2)
    recipe.model.train_parts =
        recipe.lora.enabled || random() % 2 ? "qformer,projection" : "vision,language";
  const std::string_view optimizer = recipe::word_of(recipe.optimizer.name.value());
  recipe.optimizer.nesterov =
      optimizer == "sgd" && recipe.optimizer.momentum > 0 && random() % 2 == 0;
  if (optimizer == "sgd" || optimizer == "adamw") {
    if (random() % 4 == 0) recipe.optimizer.state_dtype = "bfloat16";
    recipe.optimizer.stochastic_rounding =
        recipe.precision == "bf16-true" && !recipe.optimizer.master_weights && random() % 3 == 0;
  }
  // What Adam enlarges of a gradient that is rounding, another step's gradients would show.
  if (optimizer.starts_with("adamw")) recipe.optimizer.eps = 1e-3;
  if (random() % 3 == 0) recipe.model.dropout = random() % 2 ? 0.0 : 0.3;
  if (random() % 4 == 0) recipe.train.label_smoothing = 0.1;
  if (random() % 4 == 0) recipe.train.z_loss = 1e-3;
  if (random() % 4 == 0) recipe.train.loss_normalization = "micro";
  return recipe;
}

// Apart, so that the rest of a seed's case is what it was before there were graphs.
void draw_graphs(Case& drawn, uint64_t seed) {
  std::mt19937_64 random(seed);
  recipe::Recipe with = drawn.recipe;
  with.cuda_graphs = true;
  const bool has_experts = tests::tiny_model(drawn.shape)->routing().num_experts > 0;
  if (random() % 2 || has_experts || !recipe::can_be_combined(with)) return;
  drawn.recipe = std::move(with);
  drawn.steps = 4;  // the third one records
}

// Likewise.
void draw_noise(Case& drawn, uint64_t seed) {
  std::mt19937_64 random(~seed);
  const bool has_encoder = tests::tiny_model(drawn.shape)->reads().source;
  if (random() % 4 == 0 && !has_encoder) drawn.recipe.train.neftune_noise_alpha = 5;
}

Case draw(uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const std::vector<std::string> shapes = all_shapes();
  Case drawn;
  drawn.shape = shapes[random() % shapes.size()];
  drawn.recipe = draw_recipe(random, drawn.shape);
  const int longest = 8 + static_cast<int>(random() % 33);
  drawn.samples =
      tests::random_samples(16, longest, random(), tests::tiny_model(drawn.shape)->reads());
  drawn.steps = 2 + static_cast<int>(random() % 2);
  if (random() % 4 == 0) {
    memory::Ledger& ledger = random() % 4 ? tests::test_ledger() : memory::cpu_host_ledger();
    // A step has hundreds on the device, fewer on the host: all sizes are as likely.
    const uint32_t most = 1U << (1 + random() % 10);
    drawn.refused = {.nth = 1 + static_cast<int64_t>(random() % most),
                     .step = static_cast<int>(random() % static_cast<uint32_t>(drawn.steps)),
                     .ledger = &ledger};
  }
  draw_graphs(drawn, seed);
  draw_noise(drawn, seed);
  return drawn;
}

// What the techniques must not change. Delayed updates are others, and need their place.
recipe::Recipe without_techniques(recipe::Recipe recipe) {
  recipe.activation_checkpointing = "none";
  recipe.activation_offload = false;
  recipe.optimizer_in_backward = false;
  recipe.weight_streaming = recipe.expert_streaming = recipe.cast_cache = false;
  recipe.cuda_graphs = false;
  recipe.weight_offload = "none";
  recipe.offload_prefetch = "auto";
  if (!recipe.delayed_parameter_update) recipe.optimizer_offload = "none";
  return recipe;
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::string> names;
  std::vector<at::Tensor> before, after;  // weights, on the cpu
};

std::vector<at::Tensor> weights_of(const TinyRun& run) {
  std::vector<at::Tensor> weights;
  for (const auto& [name, tensor] : run.engine.parameters) {
    weights.push_back(tensor.detach().to(run.engine.precision.parameters).cpu().clone());
    const auto [begin, end] = tests::unseen_rows(name, weights.back().size(0));
    weights.back().slice(0, begin, end).zero_();
  }
  return weights;
}

engine::SampleIndices micro_batches_of(const Case& drawn) {
  return engine::SampleIndices(static_cast<size_t>(plan::micro_batches_that_matter(drawn.recipe)),
                               drawn.samples.longest_samples(drawn.recipe.train.micro_batch_size));
}

// A recording that finds no memory runs as always, and takes less than the plan of one.
bool refused_to_record(TinyRun& run, const Case& drawn) {
  const exec::RecordedPasses* recorded = run.engine.executor->recorded();
  return drawn.refused.nth > 0 && recorded != nullptr && recorded->counts().launched == 0;
}

// A step whose refusal may have left a part of the weights updated is std::nullopt.
std::optional<engine::StepResult> refused_step(TinyRun& run, const Case& drawn) {
  const memory::Ledger& ledger = tests::test_ledger();
  const memory::Ledger& host = memory::cpu_host_ledger();
  const int64_t before = ledger.allocated(), host_before = host.allocated();
  drawn.refused.ledger->refuse_allocation(drawn.refused.nth);
  std::optional<engine::StepResult> result;
  try {
    result = run.step(micro_batches_of(drawn), kLearningRate);
  } catch (const OutOfMemory&) {
    if (run.run.is_updating()) return {};
    // What recordings take stays.
    if (!drawn.recipe.cuda_graphs) {
      EXPECT_EQ(ledger.allocated(), before) << "after the refusal";
    }
    // A delayed update of the step before may still be at work there.
    if (!drawn.recipe.delayed_parameter_update) {
      EXPECT_EQ(host.allocated(), host_before) << "on the host, after the refusal";
    }
  }
  drawn.refused.ledger->refuse_allocation(0);
  return result ? result : run.step(micro_batches_of(drawn), kLearningRate);
}

std::optional<Trained> try_to_train(const Case& drawn, const recipe::Recipe& recipe,
                                    at::Device device, bool refuse) {
  TinyRun run(recipe, drawn.samples, drawn.shape, device);
  // Float32 homes are drawn finer than 16-bit weights: all runs start from the same ones.
  for (const auto& [name, home] : run.engine.parameters)
    home.detach().copy_(home.detach().to(run.engine.precision.parameters));
  run.run.scaler().restore(1, 0);  // a step that overflows would not be taken
  Trained result;
  for (const auto& [name, tensor] : run.engine.parameters) result.names.push_back(name);
  result.before = weights_of(run);
  for (int step = 0; step < drawn.steps; ++step) {
    const bool refused_here = refuse && drawn.refused.nth > 0 && drawn.refused.step == step;
    const tests::UncountedOnTheHost uncounted;
    const std::optional<engine::StepResult> done =
        refused_here ? refused_step(run, drawn) : run.step(micro_batches_of(drawn), kLearningRate);
    if (device.is_cuda()) uncounted.expect_none();
    if (!done) return {};
    EXPECT_TRUE(done->updated) << "step " << step + 1;
    result.losses.push_back(done->loss);
  }
  run.run.finish();
  if (refuse && refused_to_record(run, drawn)) return {};
  result.after = weights_of(run);
  return result;
}

// Another run takes the place of one that a refusal ended.
Trained train(const Case& drawn, const recipe::Recipe& recipe, at::Device device) {
  std::optional<Trained> result = try_to_train(drawn, recipe, device, /*refuse=*/true);
  if (!result) result = try_to_train(drawn, recipe, device, /*refuse=*/false);
  return *result;
}

// What libtorch's allocator counts on a GPU.
c10::CachingDeviceAllocator::DeviceStats device_counts() {
  return c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
}

// On the test device, with its memory against the plan's.
Trained train_as_planned(const Case& drawn) {
  const at::Device device = tests::test_device();
  memory::Ledger& ledger = tests::test_ledger();
  memory::Ledger& host = memory::cpu_host_ledger();
  memory::Ledger& disk = memory::cpu_disk_ledger();
  const auto model = tests::tiny_model(drawn.shape);
  const plan::Prediction predicted = plan::predict(
      *model, drawn.recipe,
      data::make_micro_batch(drawn.samples,
                             drawn.samples.longest_samples(drawn.recipe.train.micro_batch_size),
                             tests::batch_options(drawn.recipe, *model)),
      128, {.device = device.type(), .timeline = true});
  const int64_t before = ledger.allocated(), reserved_before = memory::reserved_on(device.type());
  const int64_t host_before = host.allocated(), disk_before = disk.allocated();
  ledger.reset_peak();
  host.reset_peak();
  c10::getDeviceAllocator(at::kCUDA)->resetPeakStats(0);
  Trained result = train(drawn, drawn.recipe, device);
  EXPECT_EQ(ledger.at_peak().allocated - before, predicted.peak_allocated);
  // A delayed update takes and frees memory on a thread of its own, whenever that comes to it.
  if (!drawn.recipe.delayed_parameter_update) {
    EXPECT_EQ(host.at_peak().allocated - host_before, predicted.peak_host + predicted.host_staging);
  }
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto requested = device_counts().requested_bytes[kAll];
  // Between steps libtorch's allocator has what recorded passes take, and nobody has asked for it.
  if (drawn.recipe.cuda_graphs)
    EXPECT_LE(requested.peak - before, predicted.peak_allocated);
  else
    EXPECT_EQ(requested.peak - before, predicted.peak_allocated);
  EXPECT_EQ(requested.current, before);
  if (drawn.refused.nth == 0) {
    EXPECT_LE(memory::peak_reserved_on(device.type()), predicted.peak_reserved + reserved_before);
  }
  EXPECT_EQ(ledger.allocated(), before) << "bytes left behind";
  EXPECT_EQ(host.allocated(), host_before) << "bytes left on the host";
  EXPECT_EQ(disk.allocated(), disk_before) << "bytes left on disk";
  return result;
}

// The rounding error of the type that products read.
double epsilon_of(const recipe::Recipe& recipe) {
  if (recipe.quantize == "bnb.int8") return 0x1p-7;
  switch (recipe.precision.value()) {
    case recipe::Precision::Float32:
      return 0x1p-24;
    case recipe::Precision::BFloat16:
    case recipe::Precision::MixedBFloat16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}

// How far two runs' updates may be apart, by their own length. A gradient has about a hundred
// roundings behind it, which at worst add up. Adam's first steps are mostly signs, as
// Adafactor's are in vectors, and 16-bit weights and states round small updates up or away: a share
// of the elements as large as a gradient's relative error goes the other way, by two steps, and so
// the length of the difference is that share's root. Whether a clamped gate has a gradient is
// decided at its limit, by a rounding.
double tolerance_of(const Case& drawn) {
  const recipe::Recipe& recipe = drawn.recipe;
  const double at_limits = drawn.shape.starts_with("gpt-oss") ? 0.05 : 0;
  const std::string_view optimizer = recipe::word_of(recipe.optimizer.name.value());
  const double epsilon = epsilon_of(recipe);
  // A head's magnitudes are a vector of which many elements have next to no gradient.
  const bool has_magnitudes = recipe.lora.enabled && recipe.lora.use_dora;
  const bool is_linear =
      optimizer == "sgd" || (optimizer == "adafactor" && epsilon < 0x1p-20 && !has_magnitudes);
  const bool has_16_bits =
      recipe.has_16_bit_weights() || recipe.optimizer.state_dtype == "bfloat16";
  if (is_linear && !has_16_bits) return std::max(at_limits, 128 * epsilon);
  return std::max(at_limits, 8 * std::sqrt(epsilon));
}

double norm_of(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  for (const at::Tensor& tensor : tensors)
    sum += tensor.to(at::kDouble).square().sum().item<double>();
  return std::sqrt(sum);
}

double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  std::vector<at::Tensor> apart;
  for (size_t i = 0; i < a.size(); ++i) apart.push_back(a[i].to(at::kDouble) - b[i]);
  return norm_of(apart);
}

// In 16 bits a rounding may choose another expert, and of gradients that are noise, as a router's
// are in every type for experts that are not chosen, Lion takes the sign: such runs are held to the
// same bits with another schedule alone.
bool is_like_the_cpus(const Case& drawn) {
  const bool has_experts = tests::tiny_model(drawn.shape)->routing().num_experts > 0;
  const bool is_lion = drawn.recipe.optimizer.name == "lion";
  return epsilon_of(drawn.recipe) < 0x1p-20 ? !has_experts || !is_lion : !has_experts && !is_lion;
}

// The weight that is apart most, and by how much of how many elements.
std::string farthest(const Trained& is, const Trained& expected) {
  std::string text = "none";
  double most = 0;
  for (size_t i = 0; i < is.after.size(); ++i) {
    const at::Tensor apart = (is.after[i].to(at::kDouble) - expected.after[i]).abs();
    const double norm = apart.norm().item<double>();
    if (norm <= most) continue;
    most = norm;
    text = fmt::format("{}: {:.2e}, one element {:.2e}, of {}", is.names[i], norm,
                       apart.max().item<double>(), apart.numel());
  }
  return text;
}

void expect_same_training(const Case& drawn, const Trained& is, const Trained& expected) {
  ASSERT_EQ(is.losses.size(), expected.losses.size());
  const double apart = distance(expected.after, is.after),
               moved = distance(expected.before, expected.after);
  // Float32 weights are rounded once a step.
  const double rounded = drawn.steps * 0x1p-24 * norm_of(expected.after);
  // Each step's gradients are of weights that are apart already. Lion takes the signs of gradients
  // that are noise, too: where a softmax is saturated, those of adapters in front of it.
  if (drawn.recipe.optimizer.name != "lion") {
    EXPECT_LE(apart, drawn.steps * tolerance_of(drawn) * moved + rounded)
        << "weights, most in " << farthest(is, expected);
  }
  // A loss may be apart by the weights' share of all that it has risen and fallen.
  double went = 0;
  for (size_t i = 0; i < is.losses.size(); ++i) {
    if (i > 0) went += std::abs(expected.losses[i] - expected.losses[i - 1]);
    EXPECT_NEAR(is.losses[i], expected.losses[i],
                8 * epsilon_of(drawn.recipe) * expected.losses[i] + apart / moved * went)
        << "step " << i + 1;
  }
}

// FNV-1a.
uint64_t hash_of(const Trained& trained) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  };
  add(trained.losses.data(), trained.losses.size() * sizeof(double));
  for (const at::Tensor& weight : trained.after) add(weight.const_data_ptr(), weight.nbytes());
  return hash;
}

// What a child says at its end.
struct Said {
  bool is_done = false, no_device = false;
  bool is_like_the_cpus = false;
  uint64_t bits = 0;  // of a simulated GPU's results
};

Said run(uint64_t seed) {
  tests::prepare_test_device();
  if (!tests::missing_device().empty()) {
    std::printf("%s\n", tests::missing_device().c_str());
    return {.is_done = true, .no_device = true};
  }
  at::set_num_threads(1);
  const Case drawn = draw(seed);
  SCOPED_TRACE(drawn.text());
  try {
    const Trained is = train_as_planned(drawn);
    Case undisturbed = drawn;
    undisturbed.refused = {};
    if (is_like_the_cpus(drawn))
      expect_same_training(drawn, is,
                           train(undisturbed, without_techniques(drawn.recipe), at::kCPU));
    const bool is_simulated = engine::cuda::name() == "simulated GPU";
    return {.is_done = !::testing::Test::HasFailure(),
            .is_like_the_cpus = is_like_the_cpus(drawn),
            .bits = is_simulated ? hash_of(is) : 0};
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  return {};
}

// The seed's run in a process of its own, since a fault of a GPU stays. Failures are said there.
Said run_in_child(uint64_t seed, uint64_t schedule) {
  int ends[2];
  SNUG_CHECK(pipe(ends) == 0, "no pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    constexpr unsigned kMostSeconds = 300;
    alarm(kMostSeconds);
    setenv("SNUG_SIMULATED_SEED", std::to_string(schedule).c_str(), 1);
    const Said said = run(seed);
    std::fflush(nullptr);
    const ssize_t written = write(ends[1], &said, sizeof said);
    _exit(written == sizeof said ? 0 : 1);
  }
  close(ends[1]);
  Said said;
  if (read(ends[0], &said, sizeof said) != sizeof said) said = {};
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) std::printf("seed %lu ended by signal %d\n", seed, WTERMSIG(status));
  return said;
}

struct Seeds {
  uint64_t first = 0, count = 0;
};

// Sixty take about a minute on a simulated GPU.
Seeds seeds() {
  constexpr uint64_t kDrawnFrom = 10000, kDrawn = 10000;
  Seeds result{.count = 60 / static_cast<uint64_t>(tests::one_of())};
  if (tests::one_of() > 1) result.first = kDrawnFrom + tests::draw_for("seeds")() % kDrawn;
  const char* asked = std::getenv("SNUG_SOAK");
  if (asked != nullptr && std::sscanf(asked, "%lu:%lu", &result.first, &result.count) != 2)
    ADD_FAILURE() << "SNUG_SOAK=" << asked << " is no FIRST:COUNT";
  return result;
}

TEST(Soak, RandomRecipesTrainAsPlannedAndAsOnTheCpu) {
  // There the copies that are compared would be counted too; memory_test.cpp looks at plans.
  if (tests::test_device().is_cpu()) GTEST_SKIP() << "on a cpu: no GPU beside it to compare with";
  const auto [first, count] = seeds();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string folder = tests::variable("LD_LIBRARY_PATH");  // of the simulated GPU
  const std::string library = folder.empty() ? "" : fmt::format("LD_LIBRARY_PATH={} ", folder);
  // Failures here would be the next children's.
  std::vector<std::string> failed;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Said said = run_in_child(seed, 0);
    if (said.no_device) GTEST_SKIP() << "no CUDA device";
    // Work as late as it may be, and at other times.
    const bool is_same = said.bits == 0 || (said.is_like_the_cpus && seed % 2 != 0) ||
                         run_in_child(seed, 1 + seed).bits == said.bits;
    if (said.is_done && is_same) continue;
    failed.push_back(
        fmt::format("SNUG_TEST_DEVICE=cuda {}SNUG_SOAK={}:1 {}", library, seed, program));
    std::printf("seed %lu failed%s; alone: %s\n", seed,
                is_same ? "" : " (other bits with another schedule)", failed.back().c_str());
  }
  std::printf("[  SOAKED  ] %lu seeds from %lu\n", count, first);
  EXPECT_EQ(failed, std::vector<std::string>());
}

}  // namespace
}  // namespace snug
