// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan_choice.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace snug::plan {
namespace {

std::string nearest_miss(const plan::Fit& fit, const plan::DeviceProfile& device) {
  if (!fit.smallest) return "";
  const plan::Prediction& p = fit.smallest->prediction;
  const bool on_cpu = device.kind == at::kCPU;
  std::string host;
  if (p.peak_host > 0) host = fmt::format(" and {} of host memory", format_bytes(p.peak_host));
  if (plan::missing(*fit.smallest, device).in_host > 0)
    host += fmt::format(", of which {} is available{}", format_bytes(device.host_bytes),
                        on_cpu ? " in all" : "");
  return fmt::format("\nThe smallest combination takes {}{}: {}",
                     format_bytes(on_cpu ? p.peak_allocated : p.peak_reserved), host,
                     fit.smallest->options.empty() ? "the recipe as it is" : fit.smallest->options);
}

std::string disk_advice(const plan::Fit& fit, const plan::DeviceProfile& device) {
  if (!fit.with_disk) return "";
  return fmt::format(
      "\nThere is not enough host memory; available: {}. With --fit_disk FOLDER, a folder on a "
      "disk with {} free, it would fit: {}",
      format_bytes(device.host_bytes), format_bytes(fit.with_disk->prediction.on_disk),
      fit.with_disk->options);
}

}  // namespace

std::string choice_reasons(const plan::Fit& fit, const recipe::Recipe& asked,
                           const plan::DeviceProfile& device) {
  if (!fit.best) return "";
  std::string text;
  if (fit.chose_disk(asked))
    text += fmt::format(
        "\nOptimizer states are on disk, as fit_disk allows: with the states in memory nothing "
        "fits into {} of host memory{}.",
        format_bytes(device.host_bytes > 0 ? device.host_bytes : device.assumed_host_bytes),
        device.host_bytes > 0 ? "" : ", which is assumed");
  if (plan::beyond_assumed_host(*fit.best, device) > 0)
    text += fmt::format(
        "\nNothing fits into the {} of host memory assumed for such a machine; set --host_memory "
        "to what it has.",
        format_bytes(device.assumed_host_bytes));
  if (fit.best->recipe.delayed_parameter_update && !asked.delayed_parameter_update)
    text += "\nUpdates are one step late, as fit_delay allows: training differs.";
  return text;
}

std::string why_none_fits(const plan::Fit& fit, const plan::DeviceProfile& device) {
  return nearest_miss(fit, device) + disk_advice(fit, device);
}

}  // namespace snug::plan
