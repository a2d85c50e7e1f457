import type uPlot from 'uplot'
import type { PlotTheme } from './use-plot.ts'
import type { ZoomParts } from './zoom.tsx'

/** What charts of losses have in common: uPlot's options of their axes, scales and cursor. */
type Options = Omit<uPlot.Options, 'width' | 'height'>

/** How far the axis of a share goes: a line at 1 stays below the edge. */
export const shareRange: uPlot.Range.MinMax = [0, 1.02]

/** From 0, or from below it, to a little above the largest loss; to `fallback` where there is none. */
export const lossRange =
  (fallback: number): uPlot.Range.Function =>
  (_, min, max) => [Math.min(0, min || 0), Math.max(1e-3, 1.05 * (max || fallback))]

/** The axis below: seconds, or what is counted in whole numbers. */
export const xAxis = (axis: PlotTheme['axis'], isSeconds: boolean): uPlot.Axis => ({
  ...axis,
  size: 28,
  space: 70,
  ...(isSeconds ? { values: secondTicks } : { incrs: wholeTicks }),
})

/** An axis at a side. */
export const yAxis = (axis: PlotTheme['axis']): uPlot.Axis => ({ ...axis, size: 48, space: 36 })

/** Words of ticks of a share. */
export const shareTicks = (_: uPlot, shares: readonly number[]): string[] =>
  shares.map((share) => `${Math.round(100 * share)} %`)

/** Cursor and zoom; the words of both are the page's own, not uPlot's legend. Plots of the same `group` show the cursor together. */
export const pointerOptions = (
  zoom: Pick<ZoomParts, 'cursor' | 'setSelect'>,
  setCursor: (index: number | null) => void,
  group?: string,
): Pick<Options, 'legend' | 'cursor' | 'hooks'> => ({
  legend: { show: false },
  cursor: group === undefined ? zoom.cursor : { ...zoom.cursor, sync: pointingTogether(group) },
  hooks: {
    setCursor: [({ cursor }) => setCursor(cursor.idx ?? null)],
    setSelect: [zoom.setSelect],
  },
})

/** Where the pointer is, and no clicks: each plot of a group zooms to the same stretch without this. */
const pointingTogether = (key: string): uPlot.Cursor.Sync => ({
  key,
  scales: ['x', null],
  filters: { pub: (type) => type === 'mousemove' || type === 'mouseleave', sub: () => true },
})

/** Distances between ticks for what is counted in whole numbers. */
const wholeTicks = [0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((power) =>
  [1, 2, 5].map((first) => first * 10 ** power),
)

/** Words of ticks in seconds. */
const secondTicks = (_: uPlot, values: readonly number[]): string[] =>
  values.map((value) => `${Number(value.toPrecision(4))} s`)
