// SPDX-License-Identifier: Apache-2.0
// skerryd: builds what the host needs, and runs it.
#include <poll.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/machine.h"
#include "base/progress.h"
#include "base/text.h"
#include "daemon/host/data_folder.h"
#include "daemon/host/devices.h"
#include "daemon/host/host.h"
#include "daemon/host/loop.h"
#include "daemon/host/node_view.h"
#include "daemon/host/notice_watcher.h"
#include "daemon/host/options.h"
#include "daemon/host/router_folder.h"
#include "daemon/host/verify.h"
#include "protocol/protobuf_log.h"
#include "protocol/token.h"
#include "protocol/zmq_transport.h"
#include "storage/files.h"
#include "storage/rocksdb/rocksdb_store.h"

namespace skerry::daemon {
namespace {

constexpr std::uint64_t kDiskReserveBytes = 32 << 20;
constexpr double kMillisecondsOfMinute = 60'000;
constexpr int kExitFailed = 1;   // of a command that only looks at the disk
constexpr int kExitDamaged = 8;  // as of `skerry chunk verify`

int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kTimeout:
    case ErrorCode::kUnavailable:
    case ErrorCode::kExhausted:
    case ErrorCode::kIo:
      return kExitRetry;
    default:
      return kExitConfiguration;
  }
}

// ≠ 0, and never the same twice: an earlier life's words must not be taken for
// this one's.
std::uint64_t draw_incarnation() {
  std::uint64_t drawn = 0;
  const std::string random = protocol::new_token_secret();
  for (std::size_t i = 0; i < sizeof drawn; ++i)
    drawn = drawn << 8 | static_cast<unsigned char>(random[i]);
  return drawn | 1;
}

// Before any thread is made, so that none of them is interrupted in our place.
Result<UniqueFd> take_signals(std::initializer_list<int> numbers) {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int number : numbers) ::sigaddset(&wanted, number);
  ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
  UniqueFd fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return system_error("watch", "signals", errno);
  return fd;
}

bool can_be_read(const UniqueFd& descriptor) {
  pollfd waiting{descriptor.get(), POLLIN, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

// `member` outlives what is returned.
Result<protocol::PeerNetwork::Parts> peer_network(const Options& options,
                                                  const Membership& member) {
  protocol::PeerNetwork::Parts parts{.self = member.identity.node_id(),
                                     .coordinator_key = member.context.coordinator_key,
                                     .server = nullptr,
                                     .make_client = {}};
  if (options.peer_listen != "off") {
    ASSIGN_OR_RETURN(parts.server, protocol::make_zmq_peer_server(
                                       member.identity, {.listen = options.peer_listen,
                                                         .connections = protocol::kPeersMost}));
  }
  ASSIGN_OR_RETURN(auto context, protocol::share_zmq_context(protocol::kPeersMost));
  parts.make_client = [&identity = member.identity, context = std::move(context)](
                          const std::string& url, const std::string& key) {
    return protocol::make_zmq_peer_client(identity, url, key, context);
  };
  return parts;
}

Result<int> write_router(const Options& options) {
  const Now now = SystemClock().now();
  ASSIGN_OR_RETURN(const auto view, NodeView::open(options.data));
  ASSIGN_OR_RETURN(const gossip::Table table,
                   saved_records(view->store(), view->context().coordinator_key, now));
  ASSIGN_OR_RETURN(const RouterFolder made,
                   write_router_folder(table, view->objects(), options.run, options.out, now));
  std::fputs((options.json ? made.index : made.words).c_str(), stdout);
  return kExitDone;
}

Result<int> verify(const Options& options) {
  DiskVerdict verdict;
  {
    ASSIGN_OR_RETURN(const auto view, NodeView::open(options.data));
    StandardError screen;
    Progress progress(screen, "verifying", Progress::Unit::kBytes);
    verdict = verify_disk(view->objects(), [&](std::uint64_t done, std::uint64_t total) {
      progress.show(done, total);
    });
  }
  if (!verdict.damaged.empty()) {
    // What the daemon dropped meanwhile could not be read either.
    ASSIGN_OR_RETURN(const auto view, NodeView::open(options.data));
    std::erase_if(verdict.damaged,
                  [&](const DamagedObject& each) { return !view->objects().has(each.info.name); });
  }
  if (!verdict.damaged.empty())
    TRY(write_distrusted(DataPaths(options.data).distrusted(), verdict.damaged));
  std::fputs((options.json ? verdict_json(verdict) : verdict_words(verdict)).c_str(), stdout);
  return verdict.damaged.empty() ? kExitDone : kExitDamaged;
}

// What a daemon has before its event loop.
struct Beginning {
  std::string engine;
  std::vector<DeviceSlot> slots;
  DataFolder folder;
  Membership member;
};

// A driver, an engine or the coordinator may not answer: each wait ends with
// kUnavailable once `stop` can be read.
Result<Beginning> begin(const Options& options, const Clock& clock, int stop) {
  ASSIGN_OR_RETURN(std::string engine, find_engine(options.engine));
  // Forks: before any thread is made.
  CardSearch search;
  search.options.stop = stop;
  ASSIGN_OR_RETURN(const std::vector<Card> cards, find_cards(search));
  if (!cards.empty()) TRY(check_cards(engine, driver_version(), stop));
  ASSIGN_OR_RETURN(std::vector<DeviceSlot> slots, make_slots(cards, options.slots));
  for (const DeviceSlot& slot : slots) {
    log_info(text("slot ", slot.description.index()),
             {{"device", slot.description.device()}, {"card", slot.card}});
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool names_instances =
      visible != nullptr && std::string_view(visible).find("MIG-") != std::string_view::npos;
  if (!cards.empty() && cards.front().id.starts_with("MIG-") && !names_instances) {
    log_warning(
        "CUDA shows one slice of a MIG card at most; to train on more of them, name each in "
        "CUDA_VISIBLE_DEVICES as "
        "`nvidia-smi -L` lists them");
  }
  ASSIGN_OR_RETURN(DataFolder folder, DataFolder::claim(options.data));
  // A token is not spent on a machine that cannot train.
  if (!options.token.empty() && !folder.is_enrolled()) TRY(check_training(engine, cards, stop));
  ASSIGN_OR_RETURN(Membership member, join(folder, options.token, options.name, clock,
                                           std::chrono::seconds(options.join_seconds), stop));
  return Beginning{std::move(engine), std::move(slots), std::move(folder), std::move(member)};
}

Result<int> serve(const Options& options) {
  std::signal(SIGPIPE, SIG_IGN);
  // As process 1 of a container no signal ends us by itself: we take them from
  // the start on. The host reads from `signals` the one that `stop` shows.
  ASSIGN_OR_RETURN(const UniqueFd signals, take_signals({SIGTERM, SIGINT, SIGUSR1, SIGCHLD}));
  ASSIGN_OR_RETURN(const UniqueFd stop, take_signals({SIGTERM, SIGINT}));
  // The installed engine's launcher looks there for a LibTorch.
  ::setenv("SKERRY_DATA", std::filesystem::absolute(options.data).c_str(), 1);
  const SystemClock clock;
  Notifier notifier;
  Result<Beginning> beginning = begin(options, clock, stop.get());
  if (!beginning) {
    if (!can_be_read(stop)) return beginning.error();
    log_info("told to stop before it was enrolled");
    return kExitDone;
  }
  const DataFolder& folder = beginning->folder;
  const Membership* const member = &beginning->member;
  HostOptions host_options;
  host_options.slots = std::move(beginning->slots);
  host_options.software = std::string("skerryd ") + SKERRY_VERSION;
  host_options.host_label = options.host_label.empty() ? machine_label() : options.host_label;
  host_options.upload_limit = options.upload_limit;
  host_options.download_limit = options.download_limit;
  host_options.peer_advertise = options.peer_advertise;
  host_options.distrusted = folder.distrusted();
  host_options.incarnation = draw_incarnation();
  host_options.price = options.price;
  host_options.idle_limit = std::chrono::milliseconds(
      static_cast<std::int64_t>(options.idle_minutes * kMillisecondsOfMinute));
  host_options.drain_limit = std::chrono::seconds(options.drain_seconds);
  ASSIGN_OR_RETURN(const auto store, storage::open_rocksdb_store(
                                         folder.store(), {.reserve_bytes = kDiskReserveBytes}));
  ASSIGN_OR_RETURN(const auto objects, storage::ObjectStore::open(*store, folder.objects(),
                                                                  storage::Checkpoints::kAsFiles));
  ASSIGN_OR_RETURN(const auto transport,
                   protocol::make_zmq_client(member->identity,
                                             {.endpoints = member->context.endpoints,
                                              .coordinator_key = member->context.coordinator_key}));
  ASSIGN_OR_RETURN(auto network_parts, peer_network(options, *member));
  protocol::PeerNetwork network(std::move(network_parts), clock);
  const PeerParts peers{member->identity, member->context.coordinator_key,
                        member->context.certificate, network};
  ASSIGN_OR_RETURN(Completions completions, Completions::make());
  Supervisor engines({beginning->engine, "train"});
  ThreadWorker disk(completions);
  ThreadWorker counting(completions);
  CardCounter cards{counting, [&stop] { return list_cards("/proc/self/exe", stop.get()); }};
  std::optional<IdleCommand> idle_exec;
  if (!options.idle_exec.empty()) idle_exec.emplace(options.idle_exec);
  ASSIGN_OR_RETURN(const auto host, Host::make({clock, *transport, *store, *objects, engines, disk,
                                                &peers, idle_exec ? &*idle_exec : nullptr, &cards},
                                               std::move(host_options)));
  const std::string listens = network.listens_at();
  log_info("running", {{"name", member->context.name},
                       {"coordinator", member->context.endpoints.control},
                       {"peers", listens.empty() ? "not listened for" : listens}});
  NoticeWatcher notices({options.spot, options.metadata}, clock, [&](NoticeReceived notice) {
    completions.post([&host = *host, notice = std::move(notice)] { host.on_notice(notice); });
  });
  return run(*host, {clock, *transport, engines, completions, notifier, signals.get(), &network,
                     idle_exec ? &*idle_exec : nullptr, &notices});
}

Result<int> carry_out(const Options& options) {
  switch (options.command) {
    case Command::kServe:
      return serve(options);
    case Command::kRouter:
      return write_router(options);
    case Command::kVerify:
      return verify(options);
  }
  return kExitFailed;
}

}  // namespace
}  // namespace skerry::daemon

int main(int count, char** words) {
  using namespace skerry;
  if (count == 2 && std::string_view(words[1]) == daemon::kListCards) return daemon::print_cards();
  const auto parsed = daemon::parse_options(count, words);
  if (!parsed) {
    std::fprintf(stderr, "skerryd: %s\n", parsed.error().message.c_str());
    return daemon::kExitConfiguration;
  }
  if (const auto* print = std::get_if<daemon::PrintAndExit>(&*parsed)) {
    std::fputs(print->words.c_str(), stdout);
    return daemon::kExitDone;
  }
  const auto& options = std::get<daemon::Options>(*parsed);
  init_log("skerryd", options.log_level);
  static const SystemClock clock;
  protocol::bound_protobuf_log(clock);
  const bool serves = options.command == daemon::Command::kServe;
  const Result<int> code = daemon::carry_out(options);
  if (code) return *code;
  std::fprintf(stderr, "skerryd: %s\n", code.error().message.c_str());
  return serves ? daemon::exit_code_of(code.error()) : daemon::kExitFailed;
}
