// SPDX-License-Identifier: Apache-2.0
// What clouds answer, what they might answer, and what nobody should answer.
#include "daemon/host/notices.h"

#include <gmock/gmock.h>

#include "base/text.h"

namespace skerry::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr std::int64_t kNow = 1'505'722'800'000;  // 2017-09-18T08:20:00Z

std::string action(const std::string& what, const std::string& time) {
  return text(R"({"action":")", what, R"(","time":")", time, R"("})");
}

std::string event(const std::string& machine, const std::string& type, const std::string& time,
                  const std::string& id = "C7061BAC-AFDC-4513-B24B-AA5F13A16123") {
  return text(R"({"EventId":")", id, R"(","EventStatus":"Scheduled","EventType":")", type,
              R"(","ResourceType":"VirtualMachine","Resources":["other",")", machine,
              R"("],"NotBefore":")", time, R"("})");
}

std::string events(const std::string& list) {
  return text(R"({"DocumentIncarnation":2,"Events":[)", list, "]}");
}

std::string error_of(const Announced& announced) {
  return announced ? "no error" : announced.error().message;
}

TEST(Aws, NoNoticeIsA404) {
  EXPECT_EQ(parse_aws_action(404, "<html>", kNow).value(), std::nullopt);
  EXPECT_EQ(parse_aws_rebalance(404, "").value(), std::nullopt);
}

TEST(Aws, AnActionHasADeadline) {
  for (const std::string what : {"terminate", "stop", "hibernate"}) {
    const auto notice = parse_aws_action(200, action(what, "2017-09-18T08:22:00Z"), kNow).value();
    EXPECT_EQ(notice->left, seconds(120));
    EXPECT_EQ(notice->what, "AWS: " + what);
  }
}

TEST(Aws, TheSameActionHasTheSameId) {
  const std::string body = action("terminate", "2017-09-18T08:22:00Z");
  EXPECT_EQ(parse_aws_action(200, body, kNow).value()->id,
            parse_aws_action(200, body, kNow + 5000).value()->id);
}

TEST(Aws, ARebalanceRecommendationIsAdvice) {
  const auto advice = parse_aws_rebalance(200, R"({"noticeTime":"2017-09-18T08:20:00Z"})").value();
  EXPECT_EQ(advice->left, std::nullopt);
  EXPECT_EQ(advice->what, "AWS: rebalance recommendation");
  EXPECT_THAT(error_of(parse_aws_rebalance(200, R"({"noticeTime":7})")), HasSubstr("noticeTime"));
}

TEST(Aws, ATimeThatIsPastOrAbsurdIsAnError) {
  const auto error = [](const std::string& time) {
    return error_of(parse_aws_action(200, action("terminate", time), kNow));
  };
  EXPECT_THAT(error("2017-09-18T08:20:00Z"), HasSubstr("is past"));
  EXPECT_THAT(error("1970-01-01T00:00:00Z"), HasSubstr("is past"));
  EXPECT_THAT(error("2017-09-18T09:20:01Z"), HasSubstr("more than an hour"));
  EXPECT_THAT(error("9999-12-31T23:59:59Z"), HasSubstr("more than an hour"));
  for (const char* time : {"", "soon", "2017-09-18", "2017-09-18T08:22:00Z and more",
                           "2017-13-18T08:22:00Z", "99999999999999999999-01-01T00:00:00Z"})
    EXPECT_THAT(error(time), HasSubstr("expected a time")) << time;
}

TEST(Gcp, SaysTrueOrFalse) {
  EXPECT_EQ(parse_gcp_preempted(200, "FALSE").value(), std::nullopt);
  const auto notice = parse_gcp_preempted(200, "TRUE\n").value();
  EXPECT_EQ(notice->left, kGcpNotice);
  EXPECT_EQ(notice->what, "GCP: preempted");
  EXPECT_THAT(error_of(parse_gcp_preempted(200, "true")), HasSubstr("TRUE or FALSE"));
  EXPECT_THAT(error_of(parse_gcp_preempted(404, "FALSE")), HasSubstr("status 404"));
}

TEST(Azure, AnEventOfThisMachineHasADeadline) {
  const std::string body = events(event("gpu-1", "Preempt", "Mon, 18 Sep 2017 08:20:30 GMT"));
  const auto notice = parse_azure_events(200, body, "gpu-1", kNow).value();
  EXPECT_EQ(notice->left, seconds(30));
  EXPECT_EQ(notice->what, "Azure: Preempt");
  EXPECT_EQ(notice->id, "C7061BAC-AFDC-4513-B24B-AA5F13A16123");
}

TEST(Azure, OtherMachinesAndEventsThatEndNothingAreLeftOut) {
  const std::string time = "Mon, 18 Sep 2017 08:20:30 GMT";
  for (const std::string& each : {event("gpu-2", "Preempt", time), event("gpu-1", "Freeze", time)})
    EXPECT_EQ(parse_azure_events(200, events(each), "gpu-1", kNow).value(), std::nullopt);
  EXPECT_EQ(parse_azure_events(200, events(""), "gpu-1", kNow).value(), std::nullopt);
}

TEST(Azure, AnEventThatHasBegunIsLeftOut) {
  std::string begun = event("gpu-1", "Preempt", "");
  begun.replace(begun.find("Scheduled"), 9, "Started");
  EXPECT_EQ(parse_azure_events(200, events(begun), "gpu-1", kNow).value(), std::nullopt);
}

TEST(Azure, TheNearestOfSeveralCounts) {
  const std::string body =
      events(event("gpu-1", "Terminate", "Mon, 18 Sep 2017 08:30:00 GMT", "late") + "," +
             event("gpu-1", "Preempt", "Mon, 18 Sep 2017 08:20:30 GMT", "soon"));
  EXPECT_EQ(parse_azure_events(200, body, "gpu-1", kNow).value()->id, "soon");
}

TEST(Azure, ATimeOrAnIdThatCannotBeIsAnError) {
  const auto error = [](const std::string& each) {
    return error_of(parse_azure_events(200, events(each), "gpu-1", kNow));
  };
  EXPECT_THAT(error(event("gpu-1", "Preempt", "Mon, 18 Sep 2017 08:19:00 GMT")),
              HasSubstr("is past"));
  EXPECT_THAT(error(event("gpu-1", "Preempt", "")), HasSubstr("expected a time"));
  EXPECT_THAT(error(event("gpu-1", "Preempt", "Mon, 18 Sep 2017 08:20:30 GMT", "a b")),
              HasSubstr("printable"));
}

TEST(Azure, TheAcknowledgementNamesTheEvent) {
  EXPECT_EQ(azure_acknowledgement("A-1"), R"({"StartRequests":[{"EventId":"A-1"}]})");
}

TEST(Words, HoldNothingThatCouldForgeAHeader) {
  EXPECT_EQ(parse_word(200, "token==\n").value(), "token==");
  for (const std::string& bad :
       {std::string(), std::string("a\r\nb"), std::string("a b"), std::string("\x80"),
        std::string(1025, 'a'), std::string("a\0b", 3)})
    EXPECT_FALSE(parse_word(200, bad).has_value());
  EXPECT_FALSE(parse_word(500, "token").has_value());
}

// Whatever it is: an error or nothing, never a notice and never a crash.
TEST(Garbage, AnnouncesNothing) {
  std::string all_bytes;
  for (int c = 0; c < 256; ++c) all_bytes += static_cast<char>(c);
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"),
        std::string("[1,2]"), std::string("\"x\""), std::string("7"), std::string("{}"),
        std::string(64 << 10, '['), std::string(64 << 10, 'x'), all_bytes,
        std::string(R"({"action":{},"time":[]})"), std::string(R"({"Events":{}})"),
        std::string(R"({"Events":[null,7,[],"x",{"EventType":7},{"EventType":"Preempt"}]})"),
        std::string(R"({"Events":[{"EventType":"Preempt","Resources":{}}]})")}) {
    for (const long status : {0L, 200L, 301L, 404L, 500L}) {
      for (const Announced& announced :
           {parse_aws_action(status, body, kNow), parse_aws_rebalance(status, body),
            parse_gcp_preempted(status, body), parse_azure_events(status, body, "gpu-1", kNow)})
        EXPECT_FALSE(announced.has_value() && announced->has_value()) << status << ' ' << body;
    }
  }
}

}  // namespace
}  // namespace skerry::daemon
