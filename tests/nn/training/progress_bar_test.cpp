#include "mytorch/nn/training/progress_bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace mytorch::nn {
namespace {

class ProgressBarTest : public ::testing::Test {
 protected:
  ProgressBarOptions options(bool show = true) {
    return {.label = "epoch 1", .out = &out_, .show = show, .clock = [this] { return now_; }};
  }
  std::string drawn() {
    const std::string text = out_.str();
    out_.str("");
    return text;
  }
  std::ostringstream out_;
  double now_ = 100;
};

TEST_F(ProgressBarTest, ShowsRateTimeLeftAndMetrics) {
  ProgressBar bar(100, options());
  now_ = 110;
  bar.advance(40, {{"loss", 0.69314}, {"accuracy", 0.5}});
  EXPECT_EQ(drawn(),
            "\repoch 1  40% [############..................] 40/100 4/s 0:15 left loss 0.6931 "
            "accuracy 0.5\x1b[K");
  now_ = 7310;
  bar.advance(20);
  EXPECT_EQ(drawn(),
            "\repoch 1  60% [##################............] 60/100 0.00832/s 1:20:07 left\x1b[K");
}

TEST_F(ProgressBarTest, DrawsAtMostOncePerIntervalAndAtTheEnd) {
  {
    ProgressBar bar(1000, options());
    for (int i = 0; i < 1000; ++i) {
      bar.advance();
      now_ += 0.0001;
    }
    const std::string text = drawn();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 1);
  }
  EXPECT_EQ(drawn(),
            "\repoch 1 100% [##############################] 1000/1000 1e+04/s 0:01\x1b[K\n");
}

TEST_F(ProgressBarTest, IsQuietUnlessShown) {
  {
    ProgressBar bar(3, options(false));
    bar.advance(3, {{"loss", 1}});
    EXPECT_FALSE(bar.shown());
  }
  ProgressBar unknown(3, {.out = &out_});  // a stream is no terminal
  EXPECT_FALSE(unknown.shown());
  EXPECT_EQ(drawn(), "");
}

TEST_F(ProgressBarTest, BearsAnyNumbers) {
  ProgressBar none(0, options());
  none.advance(0);
  ProgressBar negative(-5, options());
  negative.advance(10);
  now_ = 101;
  ProgressBar over(1, options());
  now_ = 102;
  over.advance(5, {{"loss", 0.0 / 0.0}});
  EXPECT_NE(drawn().find("5/1"), std::string::npos);
}

}  // namespace
}  // namespace mytorch::nn
