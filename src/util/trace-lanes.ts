/** A span of one track: where it begins and how long it lasts. */
interface Lasting {
  readonly ts?: number
  readonly dur?: number
}

/**
 * Parts spans of one track into lanes in which any two follow each other or one holds the other, as few as that takes.
 *
 * A thread of a Chrome trace is a stack: of two spans that only overlap, readers drop one or draw both wrongly.
 * order: by beginning, the longer first
 */
export function inLanes<Span extends Lasting>(spans: readonly Span[]): Span[][] {
  const lanes: { readonly spans: Span[]; readonly openEnds: number[] }[] = []
  const inOrder = spans.toSorted((a, b) => (a.ts ?? 0) - (b.ts ?? 0) || (b.dur ?? 0) - (a.dur ?? 0))
  for (const span of inOrder) {
    const { ts = 0, dur = 0 } = span
    const lane = lanes.find(({ openEnds }) => {
      while (openEnds.length > 0 && openEnds[openEnds.length - 1] <= ts) openEnds.pop()
      return openEnds.length === 0 || ts + dur <= openEnds[openEnds.length - 1]
    })
    if (lane) {
      lane.spans.push(span)
      lane.openEnds.push(ts + dur)
    } else lanes.push({ spans: [span], openEnds: [ts + dur] })
  }
  return lanes.map((lane) => lane.spans)
}
