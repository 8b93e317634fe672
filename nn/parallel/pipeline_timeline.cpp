#include "mytorch/nn/parallel/pipeline_timeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/types/errors.h"
#include "core/types/xml.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::nn {
namespace {

using Kind = PipelineAction::Kind;

constexpr int64_t kNumbers = 5;  // of a span, as it is sent

double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns what to subtract from this rank's clock to have that of rank 0: the median over some
// barriers, which all ranks leave at about the same time.
double clock_offset(const distributed::Group& group) {
  constexpr int kBarriers = 9;
  std::vector<double> offsets;
  const Tensor mine = mytorch::zeros({kBarriers}, kFloat64);
  for (int i = 0; i < kBarriers; ++i) {
    group.barrier();
    mine.data<double>()[i] = host_seconds();
  }
  const Tensor first = mine.to(group.device()).clone();
  group.broadcast(first, 0);
  const std::vector<double> of_first = first.to_vector<double>();
  for (int i = 0; i < kBarriers; ++i) {
    offsets.push_back(mine.data<double>()[i] - of_first[static_cast<size_t>(i)]);
  }
  std::nth_element(offsets.begin(), offsets.begin() + kBarriers / 2, offsets.end());
  return offsets[kBarriers / 2];
}

// The kinds of which there are times, in a set of spans.
struct MeanTimes {
  std::map<Kind, std::pair<double, int64_t>> sums = {};  // and counts

  explicit MeanTimes(const PipelineTimeline& timeline) {
    for (const PipelineSpan& span : timeline.spans) {
      auto& [sum, n] = sums[span.action.kind];
      sum += span.end - span.begin;
      ++n;
    }
  }
  double operator()(Kind kind) const {
    const auto it = sums.find(kind);
    return it == sums.end() ? 0 : it->second.first / static_cast<double>(it->second.second);
  }
};

PipelineCosts mean_costs(const PipelineTimeline& timeline) {
  const MeanTimes mean(timeline);
  if (mean.sums.count(Kind::kBackward) == 0) {
    return {mean(Kind::kForward), mean(Kind::kInputGradient), mean(Kind::kWeightGradient)};
  }
  const double half = mean(Kind::kBackward) / 2;
  return {mean(Kind::kForward), half, half};
}

int chunks_of(const PipelineActions& actions) {
  int chunks = 1;
  for (const auto& of_rank : actions) {
    for (const PipelineAction& action : of_rank) chunks = std::max(chunks, action.chunk + 1);
  }
  return chunks;
}

char letter_of(const PipelineAction& action) {
  const int64_t i = action.micro_batch;
  if (action.kind == Kind::kForward) return static_cast<char>('0' + i % 10);
  return static_cast<char>((action.kind == Kind::kWeightGradient ? 'A' : 'a') + i % 26);
}

struct Rgb {
  double red, green, blue;
};

std::string color_of(const PipelineAction& action) {
  Rgb of{};
  switch (action.kind) {
    case Kind::kForward:
      of = {86, 132, 200};
      break;
    case Kind::kBackward:
      of = {98, 168, 98};
      break;
    case Kind::kInputGradient:
      of = {72, 172, 168};
      break;
    default:
      of = {226, 188, 84};
  }
  // Towards white: half of the way after 2 chunks, and never all of it.
  const double pale = 1 - 1 / (1 + 0.5 * action.chunk);
  const auto mixed = [pale](double c) {
    return static_cast<int>(std::lround(c + (255 - c) * pale));
  };
  return absl::StrFormat("#%02x%02x%02x", mixed(of.red), mixed(of.green), mixed(of.blue));
}

std::string percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

}  // namespace

PipelineTimeline pipeline_timeline(const Pipeline& pipeline) {
  const NoGradGuard no_grad;
  const distributed::Group& group = pipeline.group();
  const double origin = pipeline.began() - clock_offset(group);
  // The numbers of actions differ between ranks of schedules of one's own only by their kinds.
  int64_t most = 0;
  for (const auto& of_rank : pipeline.actions()) {
    most = std::max(most, static_cast<int64_t>(of_rank.size()));
  }
  const Tensor mine = mytorch::zeros({1, most + 1, kNumbers}, kFloat64);
  double* to = mine.data<double>();
  *to = static_cast<double>(pipeline.events().size());
  for (const PipelineSpan& span : pipeline.events()) {
    to += kNumbers;
    to[0] = static_cast<double>(span.action.kind);
    to[1] = static_cast<double>(span.action.micro_batch);
    to[2] = span.action.chunk;
    to[3] = span.begin + origin;
    to[4] = span.end + origin;
  }
  const Tensor all = mytorch::zeros({group.size(), most + 1, kNumbers}, kFloat64, group.device());
  group.all_gather(all, mine.to(group.device()));
  const std::vector<double> numbers = all.to_vector<double>();
  PipelineTimeline timeline{group.size(), {}};
  for (int rank = 0; rank < group.size(); ++rank) {
    const double* from = numbers.data() + rank * (most + 1) * kNumbers;
    const auto n = static_cast<int64_t>(*from);
    for (int64_t i = 0; i < n; ++i) {
      from += kNumbers;
      timeline.spans.push_back(
          {rank,
           {static_cast<Kind>(from[0]), static_cast<int64_t>(from[1]), static_cast<int>(from[2])},
           from[3],
           from[4]});
    }
  }
  const double first = timeline.begin();
  for (PipelineSpan& span : timeline.spans) {
    span.begin -= first;
    span.end -= first;
  }
  return timeline;
}

PipelineReport pipeline_report(const PipelineTimeline& measured, const PipelineActions& actions) {
  std::vector<size_t> done(actions.size());
  bool same = measured.ranks == static_cast<int>(actions.size());
  for (const PipelineSpan& span : measured.spans) {
    if (!same) break;
    const auto r = static_cast<size_t>(span.rank);
    same = done[r] < actions[r].size() && actions[r][done[r]] == span.action;
    ++done[r];
  }
  for (size_t r = 0; same && r < actions.size(); ++r) same = done[r] == actions[r].size();
  if (!same) {
    fail(ErrorCode::kValue,
         "[pipeline_report] the timeline has other actions: give pipeline.actions(), and the "
         "timeline of a step, which forward() replaces");
  }
  const PipelineCosts costs = mean_costs(measured);
  return {measured.idle(), measured.bubble(), simulate_pipeline(actions, chunks_of(actions), costs),
          costs};
}

std::string PipelineReport::text() const {
  std::string text = absl::StrCat("idle ", percent(bubble), ", of the ideal timeline ",
                                  percent(ideal.bubble()), "\n");
  for (size_t rank = 0; rank < idle.size(); ++rank) {
    absl::StrAppend(&text, "rank ", rank, ": idle ", percent(idle[rank]), ", ideal ",
                    percent(ideal.idle()[rank]), "\n");
  }
  return absl::StrCat(text, absl::StrFormat("ms of an action: forward %.3f, input gradient %.3f, "
                                            "weight gradient %.3f\n",
                                            1e3 * costs.forward, 1e3 * costs.input_gradient,
                                            1e3 * costs.weight_gradient));
}

std::string timeline_text(const PipelineTimeline& timeline, int columns, double until) {
  if (columns < 0 || columns > 10000) {
    fail(ErrorCode::kValue, "[timeline_text] ", columns, " columns: give 0 to 10000");
  }
  const double begin = timeline.begin();
  const double all = (until > 0 ? until : timeline.end()) - begin;
  if (columns == 0) {
    const auto is_whole = [](double x) { return x == std::floor(x); };
    const bool units = all <= 10000 && is_whole(all) &&
                       std::all_of(timeline.spans.begin(), timeline.spans.end(),
                                   [&](const auto& s) { return is_whole(s.begin - begin); });
    columns = units ? static_cast<int>(all) : 100;
  }
  std::vector<std::string> lines(static_cast<size_t>(timeline.ranks),
                                 std::string(static_cast<size_t>(columns), '.'));
  for (const PipelineSpan& span : timeline.spans) {
    if (!(all > 0)) break;
    // The columns whose middles are inside.
    const auto column = [&](double time) {
      const double at = std::ceil((time - begin) / all * columns - 0.5);
      return static_cast<size_t>(std::clamp(at, 0.0, static_cast<double>(columns)));
    };
    std::string& line = lines[static_cast<size_t>(span.rank)];
    for (size_t c = column(span.begin); c < column(span.end); ++c) line[c] = letter_of(span.action);
  }
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

std::string timeline_svg(const std::vector<std::pair<std::string, PipelineTimeline>>& timelines,
                         int width) {
  if (width < 200 || width > 1 << 16) {
    fail(ErrorCode::kValue, "[timeline_svg] ", width,
         " pixels are out of range: give 200 to 65536");
  }
  constexpr double kLeft = 64, kMargin = 16, kTitle = 28, kRow = 26, kBar = 22, kDigit = 7;
  double longest = 0, height = kMargin;
  for (const auto& [title, timeline] : timelines) {
    longest = std::max(longest, timeline.end() - timeline.begin());
    height += kTitle + kRow * timeline.ranks + kMargin;
  }
  const double scale = longest > 0 ? (width - kLeft - kMargin) / longest : 0;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
      "%.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, height, width, height);
  double top = kMargin;
  for (const auto& [title, timeline] : timelines) {
    absl::StrAppendFormat(&svg, "<text x=\"%.0f\" y=\"%.1f\" font-size=\"13\">%s: idle %s</text>\n",
                          kMargin, top + 14, xml_escaped(title), percent(timeline.bubble()));
    top += kTitle;
    for (int rank = 0; rank < timeline.ranks; ++rank) {
      absl::StrAppendFormat(
          &svg,
          "<text x=\"%.0f\" y=\"%.1f\">rank %d</text>\n"
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" fill=\"#eeeeee\"/>\n",
          kMargin, top + kRow * rank + 15, rank, kLeft, top + kRow * rank,
          (timeline.end() - timeline.begin()) * scale, kBar);
    }
    for (const PipelineSpan& span : timeline.spans) {
      const double x = kLeft + (span.begin - timeline.begin()) * scale;
      const double y = top + kRow * span.rank, w = (span.end - span.begin) * scale;
      absl::StrAppendFormat(&svg,
                            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" "
                            "fill=\"%s\" stroke=\"white\" stroke-width=\"0.5\"><title>%s</title>"
                            "</rect>\n",
                            x, y, w, kBar, color_of(span.action), to_string(span.action));
      const std::string number = absl::StrCat(span.action.micro_batch);
      if (w < kDigit * static_cast<double>(number.size()) + 2) continue;
      absl::StrAppendFormat(&svg, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                            x + w / 2, y + 15, number);
    }
    top += kRow * timeline.ranks + kMargin;
  }
  return svg + "</svg>\n";
}

}  // namespace mytorch::nn
