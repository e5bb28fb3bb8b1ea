// SPDX-License-Identifier: Apache-2.0
#include "watch/doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/bytes.h"
#include "base/text.h"

namespace snug::doctor {
namespace {

constexpr int64_t kLittleMemory = 4 * kGiB;
constexpr int64_t kLittleDisk = 10 * kGiB;  // a model of a billion weights with its states is 12
constexpr int64_t kNoDisk = 64 * kMiB;      // not even a record and a log
constexpr int64_t kSmallShared = 1 * kGiB;
constexpr int64_t kTinyShared = 128 * kMiB;  // containers start with 64 MiB

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

bool has(const machine::Processor& processor, const char* feature) {
  return std::ranges::find(processor.features, feature) != processor.features.end();
}

Finding processor(const Facts& facts) {
  const machine::Processor& p = facts.processor;
  Finding finding{
      .subject = "processor",
      .found = fmt::format("{}, {} core{}{}{}", p.name, p.cores, p.cores == 1 ? "" : "s",
                           p.features.empty() ? "" : ": ", joined(p.features))};
  if (!has(p, "avx2") && !has(p, "asimd")) {
    finding.level = Level::Note;
    finding.why = "snug's fast kernels need AVX2 or AVX-512; without them it uses slow ones";
    finding.mend =
        "a virtual machine may hide these features: pass the host's processor through (QEMU: -cpu "
        "host)";
  }
  return finding;
}

Finding memory(const Facts& facts) {
  const machine::Memory& m = facts.memory;
  Finding finding{
      .subject = "memory",
      .found = fmt::format("{} available of {}", format_bytes(m.available), format_bytes(m.total))};
  if (m.available < kLittleMemory) {
    finding.level = Level::Note;
    finding.why = "weights are loaded into this memory, and optimizer states offloaded to it";
    finding.mend = "see which processes use it: ps aux --sort=-rss | head";
  }
  return finding;
}

// A limit that is the machine's own memory or more limits nothing.
Finding control_group(const Facts& facts) {
  const machine::Memory& m = facts.memory;
  if (!m.limit || *m.limit >= m.total)
    return {.subject = "control group", .found = "no memory limit below the machine's memory"};
  const int64_t left = *m.limit - m.in_use.value_or(0);
  return {.level = Level::Note,
          .subject = "control group",
          .found = fmt::format("{}, of which {} is in use", format_bytes(*m.limit),
                               format_bytes(m.in_use.value_or(0))),
          .why = "the kernel kills a run that uses more, without a message",
          .mend = fmt::format("set a budget for runs on the processor: --memory_budget {}MiB{}",
                              std::max<int64_t>(left * 9 / 10 / kMiB, 1),
                              facts.in_container ? "; or raise it: docker run --memory …" : "")};
}

Finding disk(const Facts& facts) {
  const machine::Disk& d = facts.disk;
  Finding finding{
      .subject = "disk",
      .found = fmt::format("{}: {} free of {}{}", facts.out_dir.string(), format_bytes(d.free),
                           format_bytes(d.size), d.kind.empty() ? "" : ", " + d.kind)};
  if (!facts.can_write) {
    finding.level = Level::Missing;
    finding.found += ", not writable";
    finding.why = "runs write models and records there";
    finding.mend = fmt::format("sudo chown \"$USER\" {}; or choose another with --out_dir",
                               shell_quoted(facts.out_dir.string()));
  } else if (d.free < kNoDisk) {
    finding.level = Level::Missing;
    finding.why = "a run could not even write its record";
    finding.mend = fmt::format("du -xsh {}/* | sort -h | tail; or choose another with --out_dir",
                               shell_quoted(facts.out_dir.string()));
  } else if (d.free < kLittleDisk) {
    finding.level = Level::Note;
    finding.why =
        "a checkpoint of full fine-tuning takes 12 bytes per weight: 12 GB per billion weights";
    finding.mend = "--train.keep_checkpoints 1, or another --out_dir";
  } else if (d.kind == "tmpfs") {
    finding.level = Level::Note;
    finding.why = "files there are kept in memory and lost on restart";
    finding.mend = "choose a folder on a disk with --out_dir";
  }
  return finding;
}

Finding shared_memory(const Facts& facts) {
  const size_t gpus = facts.gpus.gpus.size();
  const int64_t size = facts.memory.shared_memory_size.value_or(0);
  Finding finding{.subject = "/dev/shm", .found = size > 0 ? format_bytes(size) : "does not exist"};
  if (size >= kSmallShared) return finding;
  finding.level = gpus > 1 && size < kTinyShared ? Level::Missing : Level::Note;
  finding.why = "NCCL and MPI use it to pass data between the processes of one machine";
  finding.mend = facts.in_container ? "docker run --ipc=host …, or --shm-size=8g"
                                    : "sudo mount -o remount,size=8G /dev/shm";
  return finding;
}

// The driver pins what CUDA asks for by itself; the limit is on what network cards are to reach.
Finding page_locked(const Facts& facts) {
  const auto limit = facts.memory.page_locked_limit;
  Finding finding{.subject = "page-locked",
                  .found = limit ? fmt::format("{} (ulimit -l)", format_bytes(*limit))
                                 : std::string("no limit")};
  if (!limit || *limit >= kGiB || facts.gpus.gpus.empty()) return finding;
  finding.level = Level::Note;
  finding.why = "NCCL and MPI over InfiniBand lock memory; they fail or slow down if they may not";
  finding.mend = facts.in_container ? std::string("docker run --ulimit memlock=-1 …")
                                    : std::string(
                                          "echo '* - memlock unlimited' | sudo tee "
                                          "/etc/security/limits.d/memlock.conf, and log in again");
  return finding;
}

// A run of several processes is started with it; one of a single process is not.
Finding mpirun(const Facts& facts) {
  if (!facts.mpirun.empty())
    return {.subject = "mpirun",
            .found = fmt::format("{}{}{}", facts.mpirun, facts.mpirun_version.empty() ? "" : ": ",
                                 facts.mpirun_version)};
  return {.level = facts.gpus.gpus.size() > 1 ? Level::Missing : Level::Note,
          .subject = "mpirun",
          .found = "not on PATH",
          .why = "snug starts runs of several processes (--devices 2) with it",
          .mend = "sudo apt-get install openmpi-bin"};
}

Finding mpi(const Facts& facts) {
  if (!facts.mpi_library.empty()) return {.subject = "MPI", .found = facts.mpi_library};
  return {.level = Level::Missing,
          .subject = "MPI",
          .found = "the library does not load",
          .why = "the program is linked against Open MPI",
          .mend = "sudo apt-get install openmpi-bin, which includes it"};
}

}  // namespace

const char* name(Level level) {
  static constexpr const char* kNames[] = {"ok", "note", "missing"};
  return kNames[static_cast<size_t>(level)];
}

std::vector<Finding> findings(const Facts& facts) {
  std::vector<Finding> all{processor(facts), memory(facts), control_group(facts)};
  for (Finding& finding : gpu_findings(facts)) all.push_back(std::move(finding));
  for (Finding& finding : std::vector<Finding>{mpi(facts), mpirun(facts), shared_memory(facts),
                                               page_locked(facts), disk(facts)})
    all.push_back(std::move(finding));
  return all;
}

int exit_code(const std::vector<Finding>& findings) {
  return std::ranges::any_of(findings, [](const Finding& f) { return f.level == Level::Missing; })
             ? 2
             : 0;
}

}  // namespace snug::doctor
