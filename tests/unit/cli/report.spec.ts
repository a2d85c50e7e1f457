import { expect, test } from 'vitest'
import { metaOf } from '../../../demos/experiments.ts'
import { Rate } from '../../../node/rate.ts'
import { makeReporter } from '../../../node/train/report.ts'
import type { RankResult, TabEvent } from '../../../node/train/tab-group.ts'

class Memory {
  text = ''
  constructor(readonly isTTY = false) {}
  write(text: string): void {
    this.text += text
  }
}

const step = (number: number, rank = 0): TabEvent => ({
  event: 'step',
  step: number,
  totalSteps: 2,
  epoch: 0,
  loss: 0.5 / number,
  value: number / 4,
  globalSamples: 64,
  rank,
  times: { data: 0.5, forward: 4 * number, backward: 8.00049, total: 12.50049 + 4 * number - 4 },
})
const { metric } = metaOf('digits')
const events: TabEvent[] = [
  { event: 'phase', phase: 'compile', rank: 0 },
  { event: 'phase', phase: 'compile', rank: 1 },
  { event: 'phase', phase: 'train', rank: 0 },
  step(1),
  step(1, 1),
  step(2),
  { event: 'evaluation', step: 2, epoch: 0, loss: 0.4, metric: 'accuracy', value: 0.975, rank: 0 },
]
const results: RankResult[] = [0, 1].map((rank) => ({
  rank,
  links: ['webrtc'],
  bytesSent: 2 ** 20 * (rank + 1),
  result: {
    steps: 2,
    loss: 0.25,
    trainValue: 0.5,
    testAccuracy: 0.975,
    heldOutLoss: 0.4,
    value: 0.975,
    paramHash: 'abc',
    samples: 64,
    seconds: 4,
  },
}))

function report(isJson: boolean, isTTY: boolean) {
  const output = new Memory(isTTY)
  const error = new Memory()
  const reporter = makeReporter({ isJson, worldSize: 2, epochs: 1, metric }, output, error)
  reporter.note('look here')
  for (const event of events) reporter.event(event)
  reporter.done(results, { path: '/tmp/w.safetensors', sizeBytes: 2048 })
  reporter.stop()
  return { output: output.text, error: error.text }
}

test('--json prints the steps and tests of rank 0 and the end, nothing else', () => {
  const { output, error } = report(true, true)
  expect(
    output
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  ).toEqual([
    {
      event: 'step',
      step: 1,
      loss: 0.5,
      value: 0.25,
      rank: 0,
      timesMs: { data: 0.5, forward: 4, backward: 8, total: 12.5 },
    },
    {
      event: 'step',
      step: 2,
      loss: 0.25,
      value: 0.5,
      rank: 0,
      timesMs: { data: 0.5, forward: 8, backward: 8, total: 16.5 },
    },
    {
      event: 'evaluation',
      step: 2,
      epoch: 0,
      loss: 0.4,
      metric: 'accuracy',
      value: 0.975,
      rank: 0,
    },
    {
      event: 'done',
      worldSize: 2,
      steps: 2,
      loss: 0.25,
      heldOutLoss: 0.4,
      metric: 'accuracy',
      trainValue: 0.5,
      value: 0.975,
      testAccuracy: 0.975,
      paramHashes: ['abc', 'abc'],
      bytesSentPerRank: [2 ** 20, 2 ** 21],
      linksPerRank: [['webrtc'], ['webrtc']],
      samplesPerRank: [64, 64],
      seconds: 4,
    },
  ])
  expect(error).toBe('train: look here\n')
})

test('plain lines where there is no terminal, then the summary', () => {
  const { output } = report(false, false)
  expect(output.split('\n')).toEqual([
    'compiling…',
    'training…',
    'step 1/2  loss 0.5000',
    expect.stringMatching(/^step 2\/2 {2}loss 0\.2500 {2}[\d,]+ samples\/s$/),
    'epoch 1: test loss 0.4000, accuracy 97.50 %',
    'test           loss 0.4000, accuracy 97.50 %',
    'last step      loss 0.2500, accuracy 50.00 %',
    'time           4.0 s for 2 steps on 2 ranks, 32 samples/s',
    'step time      14.5 ms on rank 0: data 0.50, forward 6.00, backward 8.00',
    'sent           rank 0 1.0 MiB, rank 1 2.0 MiB',
    'weights        /tmp/w.safetensors (2.0 KiB)',
    '',
  ])
})

/** What cli-progress asks of a terminal. */
class Terminal extends Memory {
  readonly columns = 200
  constructor() {
    super(true)
  }
  cursorTo(): void {
    this.write('\r')
  }
  readonly moveCursor = () => undefined
  readonly clearLine = () => undefined
  on(): this {
    return this
  }
}

test('a bar with loss and samples/s on a terminal, then the summary', () => {
  const output = new Terminal()
  const reporter = makeReporter(
    { isJson: false, worldSize: 2, epochs: 1, metric },
    output,
    new Memory(),
  )
  for (const event of events) reporter.event(event)
  reporter.done(results, null)
  expect(output.text).toMatch(
    /training \[[^\]]+\] 2\/2 \| epoch 1\/1 \| loss 0\.2500 \| [\d,]+ samples\/s/,
  )
  expect(output.text).toContain('weights        not saved; pass --out FILE to save them\n')
})

test('the rate is of the last seconds', () => {
  const rate = new Rate(1000)
  rate.step(0, 64)
  expect(rate.perSec).toBeNaN()
  for (let ms = 100; ms <= 2000; ms += 100) rate.step(ms, 64)
  expect(rate.perSec).toBeCloseTo(640, 6)
  for (let ms = 2200; ms <= 5000; ms += 200) rate.step(ms, 64)
  expect(rate.perSec).toBeCloseTo(320, 6)
})

const resumedEvents: TabEvent[] = [
  {
    event: 'resumed',
    step: 1,
    epoch: 0,
    best: 0.5,
    stepsLeft: 1,
    differences: ['ranks 3, now 2', 'buckets'],
    rank: 0,
  },
  { event: 'unlike', step: 1, text: 'rank 1 computes other bits', isLasting: true, rank: 0 },
  step(2),
  { event: 'checkpoint', step: 2, name: 'step-2.safetensors', isBest: true, rank: 0 },
  { event: 'checkpoint', step: 2, name: 'step-2.safetensors', isBest: true, rank: 1 },
]

test.each([
  ['json', true],
  ['lines', false],
])('a resumed run, and its checkpoints: %s', (_, isJson) => {
  const output = new Memory()
  const error = new Memory()
  const reporter = makeReporter({ isJson, worldSize: 2, epochs: 1, metric }, output, error)
  for (const event of resumedEvents) reporter.event(event)
  reporter.done(results, null)
  reporter.stop()
  const lines = output.text.trim().split('\n')
  if (isJson) {
    const received = lines.map((line) => JSON.parse(line))
    expect(received.map(({ event }) => event)).toEqual([
      'resumed',
      'unlike',
      'step',
      'checkpoint',
      'done',
    ])
    expect([received[0], received[1], received[3]]).toEqual(
      [0, 1, 3].map((at) => resumedEvents[at]),
    )
    return
  }
  expect(error.text).toBe(
    'train: resuming from step 1 in epoch 1, best accuracy 50.00 %\n' +
      'train: no longer bit for bit the saved run: ranks 3, now 2; buckets\n' +
      'train: after step 1: rank 1 computes other bits\n',
  )
  expect(lines.slice(0, 2)).toEqual([
    expect.stringMatching(/^step 2\/2 {2}loss 0\.2500/),
    'checkpoint step-2.safetensors, the best so far',
  ])
  expect(lines.at(-1)).toBe('checkpoints    latest step-2.safetensors, best step-2.safetensors')
})

test.each([
  ['json', true],
  ['lines', false],
])('reports once what ranks have found, whichever rank says it: %s', (_, isJson) => {
  const output = new Memory()
  const error = new Memory()
  const reporter = makeReporter({ isJson, worldSize: 3, epochs: 1, metric }, output, error)
  const unlike = { event: 'unlike', step: 1, text: 'rank 2 differs', isLasting: true } as const
  const waits = { event: 'undecided', hadMore: false, step: 8, rank: 2 } as const
  const received: TabEvent[] = [
    { ...unlike, rank: 1 },
    { ...waits, missing: ['a.1'] },
    { ...waits, missing: null },
  ]
  for (const event of received) reporter.event(event)
  for (const rank of [0, 2]) reporter.event({ ...unlike, rank })
  expect(error.text).toBe(isJson ? '' : 'train: after step 1: rank 2 differs\n')
  const lines = output.text.split('\n').filter(Boolean)
  expect(lines.map((line) => JSON.parse(line))).toEqual(isJson ? received : [])
})

test.each([
  ['json', true],
  ['lines', false],
])('reports once whose gradients do not count: %s', (_, isJson) => {
  const output = new Memory()
  const error = new Memory()
  const reporter = makeReporter({ isJson, worldSize: 3, epochs: 1, metric }, output, error)
  const first = { event: 'leftOut', ranks: [2], notFinite: [], rank: 0 } as const
  for (const rank of [1, 0, 0]) reporter.event({ ...first, rank })
  const lines = output.text.split('\n').filter(Boolean)
  expect(lines.map((line) => JSON.parse(line))).toEqual(isJson ? [first] : [])
  expect(error.text).toBe(
    isJson
      ? ''
      : 'train: the gradients of rank 2 do not count in a step: not numbers, or far larger than those of the others\n',
  )
})

test('says once why a tab waits outside, whose connection is slow, and how much of the state has gone to new tabs', () => {
  const output = new Memory()
  const error = new Memory()
  const reporter = makeReporter({ isJson: false, worldSize: 2, epochs: 1, metric }, output, error)
  const waits = { event: 'waits', who: 'a.2' } as const
  for (const rank of [0, 1]) {
    reporter.event({ ...waits, why: 'its connection is slow.', rank })
    reporter.event({ ...waits, why: 'its connection is still slow.', rank })
    reporter.event({ ...waits, why: null, rank })
    reporter.event({ event: 'holdsUp', who: 'b.1', why: 'it is slow.', rank })
    reporter.event({ event: 'holdsUp', who: null, why: null, rank })
    for (const doneBytes of [1, 2, 3])
      reporter.event({
        event: 'state',
        doneBytes: doneBytes * 2 ** 20,
        totalBytes: 3 * 2 ** 20,
        rank,
      })
  }
  expect(error.text).toBe(
    'train: a new tab waits: its connection is slow.\n' +
      'train: the connection of a tab holds up the run: it is slow.\n' +
      "train: sent 1.0 MiB of the state's 3.0 MiB to new tabs\n" +
      "train: sent 3.0 MiB of the state's 3.0 MiB to new tabs\n",
  )
})

test('links through the server, and a run with nothing left to train, are printed', () => {
  const output = new Memory()
  const error = new Memory()
  const settings = { isJson: false, worldSize: 3, epochs: 1, metric }
  const reporter = makeReporter(settings, output, error)
  reporter.event({
    event: 'resumed',
    step: 8,
    epoch: 1,
    best: 0.5,
    holders: 2,
    stepsLeft: 0,
    differences: [],
    rank: 0,
  })
  const [first] = results
  const links = [
    ['relay', 'relay'],
    ['relay', 'webrtc'],
    ['webrtc', 'webrtc'],
  ]
  const received = links.map((own, rank) => ({ ...first, rank, links: own }))
  reporter.done(received, null)
  expect(error.text).toBe(
    'train: nothing left to train: the checkpoint is of the last step, 8, best accuracy 50.00 %\n' +
      'train: 2 of 3 ranks have this checkpoint\n',
  )
  expect(output.text).toContain('\nrelayed        rank 0 2 of 2 links, rank 1 1 of 2 links\n')
})

test('the reporter says once what each rank computes on, when its device is news', () => {
  const error = new Memory()
  const settings = { isJson: false, worldSize: 2, epochs: 1, metric }
  const reporter = makeReporter(settings, new Memory(), error)
  const cpu = 'CPU in WebAssembly, 1 thread (no GPU)'
  const report = (devices: string[]) => {
    for (const rank of [0, 1]) reporter.event({ event: 'devices', devices, rank })
  }
  report([cpu, 'nvidia · hopper'])
  report([cpu, cpu])
  reporter.stop()
  expect(error.text).toBe(
    `train: rank 0: ${cpu}\ntrain: rank 1: nvidia · hopper\ntrain: rank 1: ${cpu}\n`,
  )
})
