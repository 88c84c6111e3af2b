// SPDX-License-Identifier: Apache-2.0
#include "dashboard/server.h"

#include <arpa/inet.h>
#include <microhttpd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "dashboard/page.h"

namespace skerry::dashboard {
namespace {

using Clock = std::chrono::steady_clock;

// Nothing is loaded from elsewhere, no script or style stands in the page, and
// no other page may frame this one.
constexpr const char* kPolicy =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

struct FreeResponse {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};
using Response = std::unique_ptr<MHD_Response, FreeResponse>;

void add_header(const Response& response, const char* name, const std::string& value) {
  MHD_add_response_header(response.get(), name, value.c_str());
}

Response with_headers(Response response, const std::string& type) {
  add_header(response, "Content-Type", type);
  add_header(response, "Content-Security-Policy", kPolicy);
  add_header(response, "X-Content-Type-Options", "nosniff");
  add_header(response, "Referrer-Policy", "no-referrer");
  add_header(response, "Cross-Origin-Resource-Policy", "same-origin");
  add_header(response, "Cache-Control", "no-cache");
  return response;
}

Response response_of(std::string_view body, const std::string& type) {
  return with_headers(Response(MHD_create_response_from_buffer(
                          body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY)),
                      type);
}

// The document lives as long as its slowest reader.
Response response_of(std::shared_ptr<const Document> document) {
  auto* const held = new std::shared_ptr<const Document>(std::move(document));
  std::string& body = const_cast<std::string&>((*held)->body);
  return with_headers(
      Response(MHD_create_response_from_buffer_with_free_callback_cls(
          body.size(), body.data(),
          [](void* pointer) { delete static_cast<std::shared_ptr<const Document>*>(pointer); },
          held)),
      (*held)->type);
}

std::string_view header_of(MHD_Connection* connection, const char* name,
                           MHD_ValueKind kind = MHD_HEADER_KIND) {
  const char* value = MHD_lookup_connection_value(connection, kind, name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

class MicroServer;

// One viewer who follows changes.
struct Stream {
  MicroServer& server;
  MHD_Connection* connection;
  std::uint64_t seen = 0;
  std::string unsent{};
  Clock::time_point spoke = Clock::now();
};

class MicroServer final : public Server {
 public:
  MicroServer(const Board& board, Options options)
      : board_(board),
        options_(std::move(options)),
        access_(options_.access),
        first_key_(access_.key()),
        life_(access_.key().substr(0, 8)) {}

  ~MicroServer() override {
    if (daemon_ == nullptr) return;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      resume_all();
    }
    MHD_stop_daemon(daemon_);
  }

  Result<void> listen();

  std::uint16_t port() const override {
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  }
  const std::string& first_key() const override { return first_key_; }
  void publish() override {
    const std::lock_guard lock(mutex_);
    resume_all();
  }
  bool has_viewer(std::chrono::milliseconds duration) const override {
    return streams_ > 0 || Clock::now().time_since_epoch() - last_read_.load() < duration;
  }

  ssize_t read(Stream& stream, char* out, std::size_t most);
  void forget(const Stream*) { --streams_; }

 private:
  static MHD_Result answer(void* self, MHD_Connection* connection, const char* path,
                           const char* method, const char*, const char*, std::size_t*,
                           void** seen) {
    // An answer at the first call closes the connection afterwards: right for a
    // request whose body nobody reads.
    const std::string_view verb = method;
    if (std::exchange(*seen, self) == nullptr && (verb == "GET" || verb == "HEAD")) return MHD_YES;
    return static_cast<MicroServer*>(self)->answer(connection, path, verb);
  }
  static void log(void*, const char* format, va_list words) {
    char line[512];
    std::vsnprintf(line, sizeof line, format, words);
    std::string said(line);
    while (said.ends_with('\n')) said.pop_back();
    log_debug(said);
  }

  MHD_Result answer(MHD_Connection* connection, const std::string& path, std::string_view method);
  MHD_Result start_session(MHD_Connection* connection);
  MHD_Result follow(MHD_Connection* connection);
  MHD_Result send(MHD_Connection* connection, std::shared_ptr<const Document> document);
  MHD_Result refuse(MHD_Connection* connection, unsigned status, const std::string& words);
  MHD_Result queue(MHD_Connection* connection, unsigned status, const Response& response) {
    return MHD_queue_response(connection, status, response.get());
  }
  // REQUIRES: mutex_ is held.
  void resume_all() {
    for (Stream* stream : waiting_) MHD_resume_connection(stream->connection);
    waiting_.clear();
  }

  const Board& board_;
  const Options options_;
  Access access_;  // of the server's thread, once it runs
  const std::string first_key_;
  const std::string life_;  // of this process, in ETags
  MHD_Daemon* daemon_ = nullptr;
  std::atomic<Clock::duration> last_read_{Clock::duration::min()};
  std::atomic<int> streams_{0};
  std::mutex mutex_;  // before any lock of the library, which calls in without one
  bool closing_ = false;
  std::set<Stream*> waiting_;  // their connections are suspended
};

Result<void> MicroServer::listen() {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(options_.port);
  const bool is_v4 = ::inet_pton(AF_INET, options_.address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, options_.address.c_str(), &v6.sin6_addr) != 1) {
    return fail(ErrorCode::kInvalid, text("--listen expects an IPv4 or IPv6 address such as "
                                          "127.0.0.1 or ::1, found '",
                                          options_.address, "'"));
  }
  unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
  if (!is_v4) flags |= MHD_USE_IPv6;
  MHD_OptionItem tls[] = {
      {MHD_OPTION_HTTPS_MEM_KEY, 0, const_cast<char*>(options_.key.c_str())},
      {MHD_OPTION_HTTPS_MEM_CERT, 0, const_cast<char*>(options_.certificate.c_str())},
      {MHD_OPTION_END, 0, nullptr}};
  if (options_.certificate.empty()) {
    tls[0].option = MHD_OPTION_END;
  } else {
    flags |= MHD_USE_TLS;
  }
  const sockaddr* const address =
      is_v4 ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
  errno = 0;
  // The logger first: options behind it may have something to log.
  daemon_ = MHD_start_daemon(
      flags, options_.port, nullptr, nullptr, &MicroServer::answer, this,
      MHD_OPTION_EXTERNAL_LOGGER, &MicroServer::log, nullptr, MHD_OPTION_SOCK_ADDR, address,
      MHD_OPTION_CONNECTION_LIMIT, kConnections, MHD_OPTION_CONNECTION_TIMEOUT,
      static_cast<unsigned>(kIdle.count()), MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytes,
      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_LISTENING_ADDRESS_REUSE, 0U, MHD_OPTION_ARRAY,
      tls, MHD_OPTION_END);
  if (daemon_ != nullptr) return {};
  const int why = errno;
  if (!options_.certificate.empty() && why == 0) {
    return fail(ErrorCode::kInvalid,
                "--tls-cert and --tls-key: expected a certificate and its key in PEM, which fit "
                "each other; `openssl x509 -in FILE -noout -text` shows a certificate");
  }
  return fail(ErrorCode::kUnavailable,
              text("cannot listen on ", options_.address, " port ", options_.port, ": ",
                   why == 0 ? "the address is taken or not of this machine" : std::strerror(why),
                   "; choose another with --port N"));
}

MHD_Result MicroServer::answer(MHD_Connection* connection, const std::string& path,
                               std::string_view method) {
  if (!access_.is_own_host(header_of(connection, "Host"))) {
    return refuse(connection, MHD_HTTP_MISDIRECTED_REQUEST,
                  "this host name is not the dashboard's: start it with --host NAME to add one");
  }
  if (method != "GET" && method != "HEAD") {
    return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                  "the dashboard only shows: expected GET or HEAD; `skerry` changes things");
  }
  if (path == "/login" && method == "GET") return start_session(connection);
  if (!access_.may_read(header_of(connection, "Cookie"))) {
    return refuse(connection, MHD_HTTP_UNAUTHORIZED,
                  "this needs a session: open the one-time URL that the dashboard printed last");
  }
  last_read_ = Clock::now().time_since_epoch();
  if (path == "/api/events") return follow(connection);
  if (const auto document = board_.find(path)) return send(connection, document);
  for (const PageFile& file : page_files()) {
    if (path == file.path)
      return queue(connection, MHD_HTTP_OK, response_of(file.content, std::string(file.type)));
  }
  return refuse(connection, MHD_HTTP_NOT_FOUND,
                path.starts_with("/api/v1/run/")
                    ? "there is no such run: /api/v1/runs lists those that the coordinator has"
                    : "there is nothing at this path: / is the page");
}

// The page leads on by itself. A redirect would not: after a link in a message,
// a browser keeps a SameSite=Strict cookie back for the whole chain.
MHD_Result MicroServer::start_session(MHD_Connection* connection) {
  const auto cookie = access_.start_session(header_of(connection, "key", MHD_GET_ARGUMENT_KIND));
  if (!cookie) {
    return refuse(connection, MHD_HTTP_FORBIDDEN,
                  access_.needs_session()
                      ? "this URL was used before: open the one that the dashboard printed last"
                      : "no session is needed here: / is the page");
  }
  if (options_.next_key) options_.next_key(access_.key());
  const Response response = response_of(
      "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0; url=/\">"
      "<title>Skerry</title><a href=\"/\">To the dashboard</a>\n",
      "text/html; charset=utf-8");
  add_header(response, "Set-Cookie", *cookie);
  return queue(connection, MHD_HTTP_OK, response);
}

MHD_Result MicroServer::send(MHD_Connection* connection, std::shared_ptr<const Document> document) {
  const std::string tag = text('"', life_, '-', document->version, '"');
  const bool same = header_of(connection, "If-None-Match") == tag;
  const std::string type = document->type;
  const Response response = same ? response_of("", type) : response_of(std::move(document));
  add_header(response, "ETag", tag);
  return queue(connection, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response);
}

MHD_Result MicroServer::refuse(MHD_Connection* connection, unsigned status,
                               const std::string& words) {
  const nlohmann::ordered_json body = {{"api_version", "skerry/v1"}, {"error", words}};
  const Response response = response_of(body.dump(2) + "\n", "application/json");
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED) add_header(response, "Allow", "GET, HEAD");
  return queue(connection, status, response);
}

MHD_Result MicroServer::follow(MHD_Connection* connection) {
  const auto read_stream = [](void* stream, std::uint64_t, char* out, std::size_t most) {
    auto& held = *static_cast<Stream*>(stream);
    return held.server.read(held, out, most);
  };
  const auto end_stream = [](void* stream) {
    const std::unique_ptr<Stream> held(static_cast<Stream*>(stream));
    held->server.forget(held.get());
  };
  ++streams_;
  const Response response = with_headers(
      Response(MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream,
                                                 new Stream{*this, connection}, end_stream)),
      "text/event-stream");
  return queue(connection, MHD_HTTP_OK, response);
}

ssize_t MicroServer::read(Stream& stream, char* out, std::size_t most) {
  if (stream.unsent.empty()) {
    const std::lock_guard lock(mutex_);
    if (closing_) return MHD_CONTENT_READER_END_OF_STREAM;
    const std::string changes = board_.changes_since(stream.seen);
    const auto now = Clock::now();
    if (!changes.empty()) {
      stream.unsent = text("data: ", changes, "\n\n");
    } else if (now - stream.spoke >= kPing) {
      stream.unsent = ":\n\n";  // finds out whether the viewer is still there
    } else {
      waiting_.insert(&stream);
      MHD_suspend_connection(stream.connection);
      return 0;
    }
    stream.spoke = now;
  }
  const std::size_t bytes = std::min(most, stream.unsent.size());
  stream.unsent.copy(out, bytes);
  stream.unsent.erase(0, bytes);
  return static_cast<ssize_t>(bytes);
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const Board& board, Options options) {
  auto server = std::make_unique<MicroServer>(board, std::move(options));
  TRY(server->listen());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace skerry::dashboard
