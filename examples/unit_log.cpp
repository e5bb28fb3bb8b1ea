// A policy of one's own: it logs, for each unit of the model, how much memory is live after its
// forward and after its backward. Usage: unit_log config.json [OPTION...]; try it with
// --activation_checkpointing all, and see the forward's column fall.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <snug/engine.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

class UnitLog final : public snug::exec::Policy {
 public:
  void after_forward(snug::exec::UnitRun& run) override { live(run).forward = allocated(); }
  void after_backward(snug::exec::UnitRun& run) override { live(run).backward = allocated(); }

  void print() const {
    std::printf("%-12s %16s %16s\n", "unit", "after forward", "after backward");
    for (const std::string& name : order_)
      std::printf("%-12s %16s %16s\n", name.c_str(),
                  snug::format_bytes(live_.at(name).forward).c_str(),
                  snug::format_bytes(live_.at(name).backward).c_str());
  }

 private:
  struct Live {
    int64_t forward = 0, backward = 0;
  };
  Live& live(const snug::exec::UnitRun& run) {
    const auto [at, is_new] = live_.try_emplace(run.unit->name());
    if (is_new) order_.push_back(run.unit->name());
    return at->second;
  }
  static int64_t allocated() { return snug::memory::cpu_ledger().allocated(); }

  std::map<std::string, Live> live_;
  std::vector<std::string> order_;
};

void run(int argc, char** argv) {
  std::vector<std::string> options{"--model.config", argv[1],         "--precision",
                                   "32-true",        "--accelerator", "cpu"};
  options.insert(options.end(), argv + 2, argv + argc);
  const auto log = std::make_shared<UnitLog>();
  snug::Trainer trainer(snug::read_recipe(options, /*full=*/true),
                        {.longest = 64, .policies = {[&] { return log; }}});
  const at::Tensor rows = at::randint(50, {4, 64}, at::kLong);
  trainer.step(rows, rows);
  log->print();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s config.json [OPTION...]\n", argv[0]), 2;
  try {
    run(argc, argv);
  } catch (const snug::Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), error.exit_code();
  }
}
