// SPDX-License-Identifier: Apache-2.0
// skerry-coordinator: options, the data folder, the sockets, then the host
// until SIGTERM.
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <mutex>

#include "base/log.h"
#include "base/machine.h"
#include "base/notify.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "coordinator/host/authority.h"
#include "coordinator/host/data_folder.h"
#include "coordinator/host/host.h"
#include "coordinator/host/loop.h"
#include "coordinator/host/mirror_thread.h"
#include "coordinator/host/options.h"
#include "protocol/protobuf_log.h"
#include "protocol/token.h"
#include "protocol/zmq_transport.h"

namespace skerry::coordinator {
namespace {

constexpr int kMirrorPause = 5;  // leases: half a minute by default
constexpr int kExitDone = 0;
constexpr int kExitError = 1;
constexpr int kExitDamaged = 8;  // as of `skerry chunk verify`
constexpr int kExitBadConfiguration = 78;

// Whether another start could succeed without anybody changing anything.
int exit_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kUnauthorised:
    case ErrorCode::kCorrupt:
    case ErrorCode::kNotFound:
      return kExitBadConfiguration;
    default:
      return kExitError;
  }
}

Result<UniqueFd> catch_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  UniqueFd descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (descriptor.get() < 0)
    return fail(ErrorCode::kIo, text("cannot watch for signals: ", std::strerror(errno)));
  return descriptor;
}

std::string join_token(const FirstStart& first, const protocol::Identity& identity,
                       const protocol::Endpoints& endpoints) {
  protocol::JoinToken token;
  token.endpoints = endpoints;
  token.coordinator_key = identity.ed25519_key();
  token.id = TokenId(first.token.info().id());
  token.secret = first.token.secret();
  token.role = first.token.info().role();
  token.expires_unix_ms = first.token.info().expires_unix_ms();
  return protocol::format_token(token);
}

// To people, on standard output; the log goes to standard error.
void print_start(const Options& options, const DataFolder& folder,
                 const protocol::Identity& identity, const protocol::Endpoints& endpoints,
                 const std::optional<FirstStart>& first) {
  std::cout << "skerry-coordinator \"" << options.name << "\" serves\n"
            << "  enrol    " << endpoints.enrol << "\n  control  " << endpoints.control
            << "\n  blob     " << endpoints.blob << "\n";
  const std::string admin = std::filesystem::absolute(folder.admin_file()).string();
  if (first) {
    std::cout << "This is its first start. You are its admin by the context in\n  " << admin
              << "\nso that this works:\n  skerry --context " << admin << " node list\n"
              << "A machine joins with (" << first->token.info().uses() << " times, until "
              << utc_time(first->token.info().expires_unix_ms()) << "):\n  skerryd join "
              << join_token(*first, identity, endpoints) << " --data DIR\n";
  } else {
    std::cout << "  data     " << std::filesystem::absolute(folder.path).string() << "\n  admin    "
              << admin << "\nAnother machine joins with what this prints:\n  skerry --context "
              << admin << " token create --role node\n";
  }
  std::cout << std::flush;
}

Result<storage::S3Place> place_of(const Options& options, const std::string& url) {
  ASSIGN_OR_RETURN(storage::BucketKeys keys, storage::bucket_keys(options.store_keys));
  return storage::S3Place{.url = url,
                          .endpoint = options.store_endpoint,
                          .region = options.store_region,
                          .keys = std::move(keys)};
}

Result<std::unique_ptr<storage::Bucket>> bucket_of(const Options& options) {
  ASSIGN_OR_RETURN(storage::S3Place place, place_of(options, options.copy));
  return storage::open_s3_bucket(std::move(place));
}

Result<void> serve(const Options& options) {
  ASSIGN_OR_RETURN(const UniqueFd stop, catch_signals());
  Config config = config_for(options.lease_seconds);
  config.host_label = machine_label();
  TRY(config.check());
  const SystemClock clock;
  ASSIGN_OR_RETURN(const DataFolder folder, open_data_folder(options.data));
  ASSIGN_OR_RETURN(const protocol::Identity identity,
                   protocol::Identity::load_or_create(folder.identity_file()));
  ASSIGN_OR_RETURN(const std::unique_ptr<protocol::ServerTransport> transport,
                   protocol::make_zmq_server(
                       identity, {options.listen, options.advertise, options.connections}));
  const protocol::Endpoints endpoints = transport->endpoints();

  const protocol::Identity admin = protocol::Identity::generate();
  HostOptions host_options;
  host_options.config = config;
  host_options.upload_limit = options.upload_limit;
  host_options.first_admin = {admin.node_id(), admin.ed25519_key(), admin.x25519_key(), "admin"};
  host_options.keep_first_start = [&](const FirstStart& first) {
    return write_admin_context(folder, identity, admin, endpoints, first.certificate);
  };
  Notifier notifier;
  host_options.alive = [&] { notifier.alive(clock.now().boot); };
  host_options.report = [&](const std::string& status) { notifier.status(status); };
  SystemRng rng;
  const IdentityAuthority authority(identity);
  ASSIGN_OR_RETURN(Completions completions, Completions::make());
  ThreadWorker state_disk(completions);
  ThreadWorker object_disk(completions);
  ASSIGN_OR_RETURN(const std::unique_ptr<Host> host,
                   Host::make({*transport, *folder.store, *folder.objects, identity, authority,
                               clock, rng, state_disk, object_disk, options.data},
                              host_options));
  if (!host->first_start()) TRY(refresh_admin_context(folder, endpoints));
  std::unique_ptr<MirrorThread> mirror;
  if (!options.store.empty()) {
    ASSIGN_OR_RETURN(storage::S3Place place, place_of(options, options.store));
    ASSIGN_OR_RETURN(mirror, MirrorThread::start(options.data, identity, std::move(place),
                                                 kMirrorPause * config.lease));
  }
  print_start(options, folder, identity, endpoints, host->first_start());
  notifier.ready();
  Result<void> served = run(*host, *transport, completions, stop.get());
  notifier.stopping();
  return served;
}

Result<void> restore_fresh(const Options& options) {
  ASSIGN_OR_RETURN(const std::filesystem::path kept,
                   begin_fresh_store(options.data, SystemClock().now().unix_ms));
  std::cout
      << "a fresh store under the old identity is in " << options.data
      << "; what was there is kept in " << kept.string()
      << "\nStart the coordinator: it writes a new admin.toml, nodes and people come back by their "
         "certificates,\nand `skerry run list` shows the runs that `skerry run adopt` takes "
         "back.\n";
  return {};
}

// What a person can do about a store that cannot be read; `failed` is what was
// tried on `data`.
Error with_way_out(const Error& error, const std::string& failed, const std::string& data) {
  if (error.code != ErrorCode::kCorrupt) return error;
  return fail(
      error.code,
      text(failed, ' ', data, ": its store is damaged (", error.message,
           "), and only a store that reads as it was written is served; restore the newest backup "
           "with "
           "`skerry-coordinator restore BACKUP --data NEW_FOLDER`, or, without one, begin a fresh "
           "store under "
           "the same identity with `skerry-coordinator restore --fresh --data ",
           data, "`: nodes come back by themselves, and `skerry run adopt` takes runs back"));
}

void print_lacking(const std::vector<std::string>& lacking, const std::string& copy,
                   const std::string& from, const std::string& what_to_do) {
  if (lacking.empty()) return;
  std::cout << std::flush;
  std::cerr << copy << " lacks " << lacking.size() << (lacking.size() == 1 ? " object" : " objects")
            << ", damaged or missing in " << from << ":\n";
  for (const std::string& line : lacking) std::cerr << "  " << line << '\n';
  std::cerr << what_to_do
            << "If no node holds a dataset's file, run `skerry dataset add` of the same images. If "
               "no node holds "
               "a checkpoint, keep an earlier backup that has it.\n";
}

// RETURNS: a line on each object that the backup lacks.
Result<std::vector<std::string>> copy_out(const Options& options) {
  if (!is_bucket(options.copy)) return copy_data_folder(options.data, options.copy, std::nullopt);
  ASSIGN_OR_RETURN(const std::unique_ptr<storage::Bucket> bucket, bucket_of(options));
  ASSIGN_OR_RETURN(const protocol::Identity identity,
                   protocol::Identity::load(DataFolder{options.data, {}, {}}.identity_file()));
  Mirror mirror(*bucket, identity.ed25519_key());
  const std::filesystem::path scratch =
      std::filesystem::path(options.data) / text("reading-", ::getpid());
  StandardError terminal;
  Progress progress(terminal, "backs up", Progress::Unit::kBytes);
  std::mutex mutex;
  ASSIGN_OR_RETURN(const Mirrored mirrored,
                   mirror_folder(mirror, options.data, scratch, identity, nullptr,
                                 [&](std::uint64_t done, std::uint64_t total) {
                                   const std::scoped_lock lock(mutex);
                                   progress.show(done, total);
                                 }));
  return lines_on(mirrored.copied);
}

Result<std::vector<std::string>> copy_in(const Options& options, const Restore& restore) {
  if (!is_bucket(options.copy)) return copy_data_folder(options.copy, options.data, restore);
  ASSIGN_OR_RETURN(const std::unique_ptr<storage::Bucket> bucket, bucket_of(options));
  StandardError terminal;
  Progress progress(terminal, "restores", Progress::Unit::kBytes);
  return restore_from_bucket(
      *bucket, options.identity, options.data, restore,
      [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); });
}

Result<int> back_up(const Options& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> lacking,
                   copy_out(options).map_error([&](const Error& error) {
                     return with_way_out(error, "cannot back up", options.data);
                   }));
  std::cout << "backed up to " << options.copy << '\n';
  print_lacking(
      lacking, options.copy, options.data,
      "The backup holds everything else and can be restored.\n"
      "To repair the coordinator, run `skerry chunk verify`: nodes that hold these objects give "
      "them back. Then "
      "back up again.\n");
  return lacking.empty() ? kExitDone : kExitDamaged;
}

Result<int> restore(const Options& options) {
  const auto with_advice = [&](const Error& error) {
    if (error.code != ErrorCode::kCorrupt || is_bucket(options.copy)) return error;
    return fail(error.code,
                text("cannot restore ", options.copy, ": this backup is damaged (", error.message,
                     "); restore an earlier one, or begin a fresh store under the coordinator's "
                     "identity with `skerry-coordinator restore --fresh --data FOLDER`"));
  };
  ASSIGN_OR_RETURN(
      const std::vector<std::string> lacking,
      copy_in(options, Restore{SystemClock().now().unix_ms,
                               options.keep_tokens ? Core::Tokens::kKeep : Core::Tokens::kExpire,
                               options.partial})
          .map_error(with_advice));
  std::cout << "restored to " << options.data
            << ": work since the backup is discarded, and later leases are fenced\n";
  if (!options.keep_tokens)
    std::cout << "join tokens made before have expired: `skerry token create` makes new ones\n";
  print_lacking(lacking, options.data, options.copy,
                "Start the coordinator: nodes that hold these objects give them back, and the "
                "event object_mended "
                "says so.\n");
  return kExitDone;
}

Result<int> run(const Options& options) {
  switch (options.command) {
    case Command::kBackup:
      return back_up(options);
    case Command::kRestore:
      if (!options.fresh) return restore(options);
      TRY(restore_fresh(options));
      return kExitDone;
    case Command::kServe:
      TRY(serve(options).map_error([&](const Error& error) {
        return with_way_out(error, "cannot start on", options.data);
      }));
      return kExitDone;
  }
  return kExitDone;
}

int main_with(int count, const char* const* words) {
  const auto parsed = parse_options(count, words);
  if (!parsed) {
    std::cerr << "skerry-coordinator: " << parsed.error().message << '\n';
    return kExitBadConfiguration;
  }
  if (const auto* print = std::get_if<PrintAndExit>(&*parsed)) {
    std::cout << print->words;
    return kExitDone;
  }
  const auto& options = std::get<Options>(*parsed);
  init_log("skerry-coordinator", options.log_level);
  static const SystemClock clock;
  protocol::bound_protobuf_log(clock);
  const Result<int> status = run(options);
  if (status) return *status;
  log_error(status.error().message);
  return exit_code(status.error());
}

}  // namespace
}  // namespace skerry::coordinator

int main(int count, char** words) { return skerry::coordinator::main_with(count, words); }
