import type { RefObject } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import type uPlot from 'uplot'
import { useLoaded } from '../parts/use-loaded.ts'

/** What a plot takes from the page's look, as it is when the plot is made. */
export interface PlotTheme {
  /** The value of a variable of the theme. */
  colour(name: string): string
  /** How all axes look. */
  readonly axis: uPlot.Axis
}

export interface PlotParts {
  /** What the plot is made of: another text makes another plot. */
  readonly shape: string
  options(theme: PlotTheme): Omit<uPlot.Options, 'width' | 'height'>
  /** All x in rising order, then a column a series. */
  data(): ArrayLike<ArrayLike<number | null>>
  /** What the data depend on. */
  readonly dependsOn: readonly unknown[]
}

export interface HeldPlot {
  /** For the element that holds the plot. */
  readonly holder: RefObject<HTMLDivElement | null>
  readonly plot: RefObject<uPlot | null>
  /** Why there is no plot, where uPlot could not be loaded; else empty. */
  readonly failure: string
}

/** A plot is kept up to date when it is so near to the window. */
const nearMargin = '100px'

/** A uPlot of the size of its element and in the page's colours, light and dark; its data are those of the render. Out of the window it is drawn once, and again when it comes near. */
export function usePlot(parts: PlotParts): HeldPlot {
  const { shape, options, dependsOn } = parts
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const { part, failure } = useLoaded('the chart', () => import('uplot'), true)
  const Plot = part?.default
  const made = `${useThemeChanges()} ${shape}`

  useLayoutEffect(() => {
    if (!Plot) return
    const element = holder.current!
    const built = options(themeOf(element))
    const own = new Plot(
      { ...sizeOf(element), ...built },
      built.series.map(() => []) as unknown as uPlot.AlignedData,
      element,
    )
    plot.current = own
    drawing.current.isDrawn = false
    const resized = new ResizeObserver(() => own.setSize(sizeOf(element)))
    resized.observe(element)
    const near = new IntersectionObserver(
      (entries) => {
        drawing.current.isNear = entries[entries.length - 1].isIntersecting
        if (drawing.current.isStale) draw()
      },
      { rootMargin: nearMargin },
    )
    near.observe(element)
    return () => {
      resized.disconnect()
      near.disconnect()
      own.destroy()
      plot.current = null
    }
  }, [made, Plot])

  const newest = useRef(parts)
  newest.current = parts
  const drawing = useRef({ isNear: true, isStale: false, isDrawn: false })
  const draw = () => {
    const { current } = drawing
    current.isStale = current.isDrawn && !current.isNear
    if (current.isStale) return
    current.isDrawn = true
    plot.current?.setData(newest.current.data() as unknown as uPlot.AlignedData)
  }

  // With the render, not after it: all that the page shows is of the same step. A new plot needs its data as well.
  useLayoutEffect(draw, [...dependsOn, made, Plot])
  return { holder, plot, failure }
}

/** Counts how often the page turned dark or light. */
function useThemeChanges(): number {
  const [count, setCount] = useState(0)
  useLayoutEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const changed = () => setCount((before) => before + 1)
    dark.addEventListener('change', changed)
    return () => dark.removeEventListener('change', changed)
  }, [])
  return count
}

function themeOf(element: HTMLElement): PlotTheme {
  const style = getComputedStyle(element)
  const colour = (name: string) => style.getPropertyValue(name).trim()
  return {
    colour,
    axis: {
      stroke: colour('--ink-quiet'),
      font: `11px ${style.fontFamily}`,
      grid: { stroke: colour('--hairline'), width: 1 },
      ticks: { stroke: colour('--hairline'), width: 1, size: 4 },
    },
  }
}

const sizeOf = (element: HTMLElement): { width: number; height: number } => ({
  width: element.clientWidth,
  height: element.clientHeight,
})
