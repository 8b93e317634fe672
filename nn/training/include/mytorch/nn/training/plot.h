// Plots of curves as SVG files.
#pragma once

#include <string>
#include <vector>

namespace mytorch::nn {

// A curve. Points that are not finite, or not positive on a logarithmic axis, interrupt the line;
// so do numbers beyond 1e300.
struct Series {
  std::string name;       // in the legend
  std::vector<double> x;  // empty: 0, 1, 2, ...
  std::vector<double> y;
};

struct PlotOptions {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  bool log_y = false;
  int width = 720;  // in pixels
  int height = 440;
};

// Returns the text of an SVG file with axes, ticks at round numbers, and a legend if there are
// several series or names. Throws Error(kValue) if x and y of a series differ in length.
std::string plot_svg(const std::vector<Series>& series, const PlotOptions& options = {});

// Writes it to a file. Throws Error(kIo).
void save_plot(const std::string& path, const std::vector<Series>& series,
               const PlotOptions& options = {});

}  // namespace mytorch::nn
