import type { Story } from './story.ts'

/** One line of what a run cost: as docs/how-it-works/collectives.md states it, and as it was counted. */
export interface Cost {
  readonly what: string
  readonly formula: string
  /** Undefined where none is stated for such links. */
  readonly stated: number | undefined
  readonly counted: number
  readonly unit: 'steps' | 'bytes' | 'ms'
  /** What the count must be of the stated number; about: the formula leaves something out. */
  readonly must: 'equal' | 'atMost' | 'about'
}

/** Of a whole run. Bytes are those of the arrays, without headers; of the ranks' the mean. */
export function costsOf(story: Story): Cost[] {
  const { settings, algorithm, machines, messages, chunks, endMs } = story
  const { ranks, length, latencyMs, rateMb, lossPercent } = settings
  const sizeBytes = 4 * length
  const sum = (of: readonly { payloadBytes: number }[]) =>
    of.reduce((total, { payloadBytes }) => total + payloadBytes, 0)
  const others = ranks - 1
  const transferMs = (bytes: number) => bytes / (1000 * rateMb)
  const chunkBytes = 4 * Math.max(...chunks.map(({ start, end }) => end - start))
  const table = {
    ring: {
      steps: ['2(N−1)', 2 * others],
      bytes: ['2(N−1)/N · S', (2 * others * sizeBytes) / ranks],
      ms: ['2(N−1) · (latency + S/N ÷ rate)', 2 * others * (latencyMs + transferMs(chunkBytes))],
    },
    direct: {
      steps: ['2', 2],
      bytes: ['2(N−1)/N · S', (2 * others * sizeBytes) / ranks],
      ms: ['2 · (latency + (N−1)/N · S ÷ rate)', 2 * (latencyMs + transferMs(others * chunkBytes))],
    },
    oneShot: {
      steps: ['1', 1],
      bytes: ['(N−1) · S', others * sizeBytes],
      ms: ['latency + (N−1) · S ÷ rate', latencyMs + transferMs(others * sizeBytes)],
    },
    hierarchical: { steps: ['at most 4', 4], bytes: ['', undefined], ms: ['', undefined] },
  } as const
  const { steps, bytes, ms } = table[algorithm]
  const isPlain = machines === undefined && lossPercent === 0
  const costs: Cost[] = [
    {
      what: 'Steps in sequence',
      formula: steps[0],
      stated: steps[1],
      counted: Math.max(0, ...messages.map(({ hop }) => hop)),
      unit: 'steps',
      must: algorithm === 'hierarchical' ? 'atMost' : 'equal',
    },
    {
      what: 'Bytes sent per rank',
      formula: bytes[0],
      stated: bytes[1],
      counted: sum(messages) / ranks,
      unit: 'bytes',
      must: 'equal',
    },
  ]
  if (algorithm === 'hierarchical' && machines) {
    const count = new Set(machines).size
    const leaving = messages.filter(({ from, to }) => machines[from] !== machines[to])
    costs.push({
      what: 'Bytes leaving a machine',
      formula: '2(M−1)/M · S',
      stated: (2 * (count - 1) * sizeBytes) / count,
      counted: sum(leaving) / count,
      unit: 'bytes',
      must: 'equal',
    })
  }
  costs.push({
    what: 'Time',
    formula: isPlain ? ms[0] : '',
    stated: isPlain ? ms[1] : undefined,
    counted: endMs,
    unit: 'ms',
    must: 'about',
  })
  return costs
}

/** Whether a cost is what it must be; undefined where nothing is stated, or not exactly. */
export function isAsStated({ stated, counted, must }: Cost): boolean | undefined {
  if (stated === undefined || must === 'about') return undefined
  const rounding = 1e-9 * stated
  return counted <= stated + rounding && (must === 'atMost' || counted >= stated - rounding)
}
