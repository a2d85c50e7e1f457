import type { BrowserContext, Page } from 'playwright'

/** A shift that no act of a person has caused, as Chromium counts it. */
export interface Shift {
  /** Share of the window that moved, times how far. */
  readonly value: number
  /** What moved: a selector, and from where to where. units: CSS pixels. */
  readonly what: readonly string[]
}

declare global {
  interface Window {
    shifts: Shift[]
  }
}

/** From now on the pages of a context list their shifts. */
export const listShifts = (context: Pick<BrowserContext, 'addInitScript'>): Promise<unknown> =>
  context.addInitScript(() => {
    interface Entry extends PerformanceEntry {
      value: number
      hadRecentInput: boolean
      sources: { node: Node | null; previousRect: DOMRect; currentRect: DOMRect }[]
    }
    const nameOf = (node: Node | null): string => {
      const element = node instanceof Element ? node : node?.parentElement
      if (!element) return 'gone'
      const { id, className, parentElement, tagName } = element
      const classes = String(className).trim().replaceAll(/\s+/g, '.')
      const own = id ? `#${id}` : `${tagName.toLowerCase()}${classes && `.${classes}`}`
      return id || !parentElement ? own : `${nameOf(parentElement)} > ${own}`
    }
    window.shifts = []
    new PerformanceObserver((list) => {
      for (const { value, hadRecentInput, sources } of list.getEntries() as Entry[]) {
        if (hadRecentInput) continue
        const what = sources.map(({ node, previousRect: a, currentRect: b }) => {
          const at = ({ x, y, width, height }: DOMRect) => [x, y, width, height].map(Math.round)
          return `${nameOf(node)} ${at(a)} -> ${at(b)}`
        })
        window.shifts.push({ value, what })
      }
    }).observe({ type: 'layout-shift', buffered: true })
  })

/** The shifts of a page so far. */
export const shiftsOf = (page: Page): Promise<Shift[]> => page.evaluate(() => window.shifts)
