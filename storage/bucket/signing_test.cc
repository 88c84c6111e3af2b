// SPDX-License-Identifier: Apache-2.0
// signing_oracle.py compares with botocore.
#include "storage/bucket/signing.h"

#include <gtest/gtest.h>

namespace skerry::storage {
namespace {

// The example of the document that signing.h names.
TEST(SignedUrl, IsThatOfTheDocumentation) {
  const SignedRequest request{.origin = "https://examplebucket.s3.amazonaws.com",
                              .path = "/test.txt"};
  const BucketKeys keys{.id = "AKIAIOSFODNN7EXAMPLE",
                        .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                        .token = ""};
  EXPECT_EQ(signed_url(request, keys, "us-east-1", 1369353600, std::chrono::seconds(86400)),
            "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
            "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
            "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
            "&X-Amz-Signature="
            "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

TEST(SignedUrl, EncodesAsS3Does) {
  EXPECT_EQ(uri_encoded("a/b c+ä~", true), "a/b%20c%2B%C3%A4~");
  EXPECT_EQ(uri_encoded("a/b", false), "a%2Fb");
}

}  // namespace
}  // namespace skerry::storage
