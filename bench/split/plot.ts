import type { TaskSpan } from '../../src/parallel/pipeline/simulate.ts'

/** A measured value with its standard deviation. */
export interface Bar {
  readonly name: string
  readonly value: number
  readonly deviation: number
}

const widest = 50

/** Bars for a terminal. */
export function barLines(bars: readonly Bar[]): string[] {
  const max = Math.max(...bars.map(({ value }) => value))
  const names = Math.max(...bars.map(({ name }) => name.length))
  return bars.map(({ name, value }) => {
    const length = Math.round((value / max) * widest)
    return `${name.padEnd(names)} ${'█'.repeat(length)} ${value.toFixed(1)}`
  })
}

const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')

/** The same as an SVG image, with whiskers of one deviation. */
export function barsAsSvg(title: string, bars: readonly Bar[]): string {
  const [left, rowHeight, width] = [180, 24, 460]
  const max = Math.max(...bars.map(({ value, deviation }) => value + deviation))
  const x = (value: number) => (left + (value / max) * width).toFixed(1)
  const rows = bars.map(({ name, value, deviation }, i) => {
    const y = 40 + i * rowHeight
    const middle = y + 8
    return [
      `<text x="${left - 8}" y="${y + 12}" text-anchor="end">${escaped(name)}</text>`,
      `<rect x="${left}" y="${y}" width="${((value / max) * width).toFixed(1)}" height="16" fill="#1864ab"/>`,
      `<path d="M${x(Math.max(0, value - deviation))} ${middle}H${x(value + deviation)}" stroke="#000"/>`,
      `<text x="${left + width + 8}" y="${y + 12}">${value.toFixed(1)}</text>`,
    ].join('')
  })
  const height = 52 + bars.length * rowHeight
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${left + width + 80} ${height}" font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#fff"/><text x="8" y="22" font-weight="bold">${escaped(title)}</text>${rows.join('')}</svg>\n`
}

const stripWidth = 72

/** When each device does what, as a line of characters. */
export function stripLines(spans: readonly TaskSpan[], devices: number): string[] {
  const endMs = Math.max(...spans.map((span) => span.endMs))
  return Array.from({ length: devices }, (_, device) => {
    const cells = new Array<string>(stripWidth).fill('·')
    for (const span of spans.filter((one) => one.device === device)) {
      const from = Math.floor((span.startMs / endMs) * stripWidth)
      const to = Math.max(from + 1, Math.floor((span.endMs / endMs) * stripWidth))
      cells.fill(span.kind === 'forward' ? '░' : '█', from, to)
    }
    return `device ${device} ${cells.join('')}`
  })
}
