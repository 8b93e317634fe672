#include "mytorch/nn/training/plot.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::read_file;
using mytorch::testing::TempDirectory;

int count_of(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

bool has_text(const std::string& svg, const std::string& text) {
  return svg.find(">" + text + "</text>") != std::string::npos;
}

TEST(Plot, HasTicksAtRoundNumbersAndALegend) {
  const std::string svg =
      plot_svg({{"train <loss>", {}, {0.93, 0.5, 0.31}}, {"test", {0, 2}, {0.95, 0.4}}},
               {.title = "A & B", .x_label = "epoch", .y_label = "loss"});
  for (const char* text : {"0", "0.5", "1", "1.5", "2", "0.4", "0.6", "0.8", "A &amp; B", "epoch",
                           "loss", "train &lt;loss&gt;", "test"}) {
    EXPECT_TRUE(has_text(svg, text)) << text << " in " << svg;
  }
  EXPECT_EQ(count_of(svg, "<polyline"), 2);
  EXPECT_EQ(svg.find("<svg xmlns"), 0u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(Plot, PutsPointsInTheirPlaces) {
  // The plot's corners are at (64, 404) and (700, 20); y goes from 0 to 10.
  const std::string svg = plot_svg({{"", {0, 10}, {0, 10}}});
  EXPECT_NE(svg.find("points=\"64.00,404.00 700.00,20.00\""), std::string::npos) << svg;
}

TEST(Plot, HasDecadesOnALogarithmicAxis) {
  const std::string svg = plot_svg({{"", {}, {100, 1, 0.001, 0, -1, 0.01}}}, {.log_y = true});
  for (const char* text : {"0.001", "0.01", "0.1", "1", "10", "100"}) {
    EXPECT_TRUE(has_text(svg, text)) << text;
  }
  EXPECT_NE(svg.find(",20.00 "), std::string::npos);  // 100 is at the top
  EXPECT_EQ(count_of(svg, "<polyline"), 1);
  EXPECT_EQ(count_of(svg, "<circle"), 1);  // beyond the points that a logarithm lacks
  EXPECT_TRUE(has_text(plot_svg({{"", {}, {1, 9}}}, {.log_y = true}), "5"));
}

TEST(Plot, BearsAnyNumbers) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kMost = std::numeric_limits<double>::max();
  const std::vector<std::vector<double>> cases{{},
                                               {1},
                                               {5, 5, 5},
                                               {kInf, -kInf, 0.0 / 0.0},
                                               {-kMost, kMost},
                                               {0, 1e-320},
                                               {1e300, 1},
                                               {1, 1 + 1e-15},
                                               {-3, -3},
                                               {0}};
  for (const auto& y : cases) {
    for (const bool log_y : {false, true}) {
      const std::string svg = plot_svg({{"", {}, y}}, {.log_y = log_y});
      EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
      EXPECT_GE(count_of(svg, "<text"), 2) << svg;
    }
  }
  plot_svg({});
}

TEST(Plot, IsWrittenToAFile) {
  const TempDirectory directory;
  save_plot(directory.file("a.svg"), {{"a", {}, {1, 2}}});
  EXPECT_EQ(read_file(directory.file("a.svg")), plot_svg({{"a", {}, {1, 2}}}));
  expect_error(ErrorCode::kIo, {"[save_plot]"}, [] { save_plot("/no/such/a.svg", {}); });
  expect_error(ErrorCode::kValue, {"'a'", "1 values of x and 2 of y"}, [] {
    plot_svg({{"a", {1}, {1, 2}}});
  });
  expect_error(ErrorCode::kValue, {"[plot_svg] 10 x 440"}, [] { plot_svg({}, {.width = 10}); });
}

}  // namespace
}  // namespace mytorch::nn
