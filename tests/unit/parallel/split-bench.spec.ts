import { expect, test } from 'vitest'
import { barLines, barsAsSvg, stripLines } from '../../../bench/split/plot.ts'
import { percentMore } from '../../../bench/statistics.ts'

test("the tutorial's times give its percentages", () => {
  // Seconds for ResNet-50: on one GPU, with layers on two, and pipelined.
  const [one, layers, pipelined, best] = [3.75, 4.02, 2.51, 2.43]
  expect(percentMore(layers, one).toFixed(0)).toBe('7')
  expect(percentMore(one, pipelined).toFixed(0)).toBe('49')
  expect(percentMore(one, best).toFixed(0)).toBe('54')
})

test('bars are as long as their values, in text and as an image', () => {
  const bars = [
    { name: 'one', value: 10, deviation: 1 },
    { name: 'a < b', value: 5, deviation: 0 },
  ]
  const lengths = barLines(bars).map((line) => line.replaceAll(/[^█]/g, '').length)
  expect(lengths).toEqual([50, 25])
  const svg = barsAsSvg('Times', bars)
  expect(svg).toContain('a &lt; b')
  const widths = [...svg.matchAll(/<rect x="180"[^>]* width="([\d.]+)"/g)]
  expect(widths.map(([, width]) => Number(width))).toEqual([418.2, 209.1])
})

test('a schedule as text has a line for each device, idle before its first task', () => {
  const task = { kind: 'forward', stage: 0, microBatch: 0 } as const
  const lines = stripLines(
    [
      { ...task, device: 0, startMs: 0, endMs: 1 },
      { ...task, kind: 'backward', device: 1, startMs: 1, endMs: 3 },
    ],
    2,
  )
  expect(lines).toEqual([
    `device 0 ${'░'.repeat(24)}${'·'.repeat(48)}`,
    `device 1 ${'·'.repeat(24)}${'█'.repeat(48)}`,
  ])
})
