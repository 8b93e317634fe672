#include "mytorch/nn/training/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "core/types/errors.h"
#include "core/types/xml.h"
#include "nn/serialize/atomic_file.h"

namespace mytorch::nn {
namespace {

constexpr const char* kColors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                   "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"};

// One axis: data values, and their places in [0, 1].
struct Axis {
  bool log = false;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  std::vector<double> ticks;

  // Numbers beyond 1e300 count as infinite, so that sums of them are finite.
  bool shows(double value) const { return std::abs(value) <= 1e300 && (!log || value >= 1e-300); }
  void include(double value) {
    if (!shows(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double place(double value) const {
    if (log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    return (value - low) / (high - low);
  }
  // Chooses about five ticks. Widens the range to them if `round`, and to something if it is empty.
  void finish(bool round) {
    if (low > high) low = log ? 1 : 0, high = log ? 10 : 1;
    if (log) {
      finish_log();
      return;
    }
    const double most = std::max(std::abs(low), std::abs(high));
    if (high - low <= most * 1e-12 + 1e-290) {
      const double margin = most < 1e-280 ? 1 : most / 10;
      low -= margin;
      high += margin;
    }
    const double step = nice_step((high - low) / 5);
    if (round) {
      low = std::floor(low / step) * step;
      high = std::ceil(high / step) * step;
    }
    const double first = std::ceil(low / step - 1e-9);
    for (int i = 0; i < 20; ++i) {
      const double tick = (first + i) * step;
      if (!(tick <= high + step * 1e-9)) break;
      ticks.push_back(tick);
    }
  }

 private:
  // 1, 2 or 5 times a power of ten, at least `rough`.
  static double nice_step(double rough) {
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= rough) return factor * power;
    }
    return 10 * power;
  }
  void finish_log() {
    const double first = std::floor(std::log10(low) + 1e-9);
    const double last = std::max(std::ceil(std::log10(high) - 1e-9), first + 1);
    low = std::pow(10, first);
    high = std::pow(10, last);
    const double step = std::ceil((last - first) / 8);
    for (double power = first; power <= last; power += step) ticks.push_back(std::pow(10, power));
    // Few decades get ticks in between.
    if (last - first > 2) return;
    for (double power = first; power < last; ++power) {
      for (const double factor : {2.0, 5.0}) ticks.push_back(factor * std::pow(10, power));
    }
    std::sort(ticks.begin(), ticks.end());
  }
};

std::string formatted_tick(double value, double range) {
  if (std::abs(value) < range * 1e-9) return "0";
  return absl::StrFormat("%.6g", value);
}

void check_series(const std::vector<Series>& series) {
  for (const Series& one : series) {
    if (!one.x.empty() && one.x.size() != one.y.size()) {
      fail(ErrorCode::kValue, "[plot_svg] series '", one.name, "' has ", one.x.size(),
           " values of x and ", one.y.size(), " of y: give as many of both, or no x");
    }
  }
}

double x_at(const Series& series, size_t i) {
  return series.x.empty() ? static_cast<double>(i) : series.x[i];
}

class Canvas {
 public:
  Canvas(const std::vector<Series>& series, const PlotOptions& options)
      : series_(series), options_(options) {
    y_.log = options.log_y;
    for (const Series& one : series) {
      for (size_t i = 0; i < one.y.size(); ++i) {
        if (!x_.shows(x_at(one, i)) || !y_.shows(one.y[i])) continue;
        x_.include(x_at(one, i));
        y_.include(one.y[i]);
      }
    }
    x_.finish(false);
    y_.finish(true);
    right_ = options.width - 20;
    bottom_ = options.height - (options.x_label.empty() ? 36 : 54);
    left_ = options.y_label.empty() ? 64 : 84;
    top_ = options.title.empty() ? 20 : 44;
  }

  std::string draw() {
    absl::StrAppendFormat(&svg_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                          "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
                          "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                          options_.width, options_.height, options_.width, options_.height);
    draw_axes();
    for (size_t i = 0; i < series_.size(); ++i) draw_series(series_[i], color(i));
    draw_legend();
    return svg_ + "</svg>\n";
  }

 private:
  static const char* color(size_t i) { return kColors[i % std::size(kColors)]; }
  double to_x(double value) const { return left_ + x_.place(value) * (right_ - left_); }
  double to_y(double value) const { return bottom_ - y_.place(value) * (bottom_ - top_); }

  void text(double x, double y, const char* anchor, const std::string& content,
            const char* more = "") {
    absl::StrAppendFormat(&svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x,
                          y, anchor, more, xml_escaped(content));
  }
  void line(double x1, double y1, double x2, double y2, const char* stroke) {
    absl::StrAppendFormat(&svg_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                          x1, y1, x2, y2, stroke);
  }
  void draw_axes() {
    for (const double tick : x_.ticks) {
      line(to_x(tick), top_, to_x(tick), bottom_, "#e5e5e5");
      text(to_x(tick), bottom_ + 17, "middle", formatted_tick(tick, x_.high - x_.low));
    }
    for (const double tick : y_.ticks) {
      line(left_, to_y(tick), right_, to_y(tick), "#e5e5e5");
      text(left_ - 7, to_y(tick) + 4, "end", formatted_tick(tick, y_.log ? 0 : y_.high - y_.low));
    }
    line(left_, bottom_, right_, bottom_, "#333333");
    line(left_, top_, left_, bottom_, "#333333");
    const double middle = (left_ + right_) / 2;
    if (!options_.title.empty()) text(middle, 27, "middle", options_.title, " font-size=\"16\"");
    if (!options_.x_label.empty()) text(middle, options_.height - 12, "middle", options_.x_label);
    if (!options_.y_label.empty()) {
      const double y = (top_ + bottom_) / 2;
      text(20, y, "middle", options_.y_label,
           absl::StrFormat(" transform=\"rotate(-90 20 %.1f)\"", y).c_str());
    }
  }
  void draw_series(const Series& series, const char* stroke) {
    for (size_t i = 0; i < series.y.size();) {
      std::string points;
      size_t n = 0;
      double x = 0, y = 0;
      for (; i < series.y.size() && x_.shows(x_at(series, i)) && y_.shows(series.y[i]); ++i, ++n) {
        x = to_x(x_at(series, i));
        y = to_y(series.y[i]);
        absl::StrAppendFormat(&points, "%s%.2f,%.2f", n == 0 ? "" : " ", x, y);
      }
      if (n == 1) {
        absl::StrAppendFormat(&svg_, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"2.5\" fill=\"%s\"/>\n", x,
                              y, stroke);
      } else if (n > 1) {
        absl::StrAppend(&svg_, "<polyline fill=\"none\" stroke=\"", stroke,
                        "\" stroke-width=\"1.6\" points=\"", points, "\"/>\n");
      }
      ++i;
    }
  }
  void draw_legend() {
    double y = top_ + 14;
    for (size_t i = 0; i < series_.size(); ++i) {
      if (series_[i].name.empty()) continue;
      text(right_ - 32, y + 4, "end", series_[i].name);
      line(right_ - 26, y, right_ - 4, y, color(i));
      y += 18;
    }
  }

  const std::vector<Series>& series_;
  const PlotOptions& options_;
  Axis x_, y_;
  double left_, right_, top_, bottom_;
  std::string svg_;
};

}  // namespace

std::string plot_svg(const std::vector<Series>& series, const PlotOptions& options) {
  check_series(series);
  if (options.width < 200 || options.height < 120 || options.width > 1 << 16 ||
      options.height > 1 << 16) {
    fail(ErrorCode::kValue, "[plot_svg] ", options.width, " x ", options.height,
         " pixels are out of range: give 200 x 120 to 65536 x 65536");
  }
  return Canvas(series, options).draw();
}

void save_plot(const std::string& path, const std::vector<Series>& series,
               const PlotOptions& options) {
  const std::string svg = plot_svg(series, options);
  AtomicFile file("save_plot", path);
  file.write(svg.data(), svg.size());
  file.commit();
}

}  // namespace mytorch::nn
