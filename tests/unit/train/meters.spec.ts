import { expect, test } from 'vitest'
import { AverageMeter } from '../../../src/ddp/metrics/average-meter.ts'
import { ProgressMeter } from '../../../src/ddp/metrics/progress-meter.ts'
import { numberFormat } from '../../../src/util/number-format.ts'

// The texts are what Python printed for the classes of PyTorch's examples/imagenet/main.py, fed with the same numbers.

test('lines and summary of an epoch', () => {
  const time = new AverageMeter('Time', ':6.3f', 'none')
  const loss = new AverageMeter('Loss', ':.4e')
  const accuracy = new AverageMeter('Acc@1', ':6.2f', 'sum')
  const seen = new AverageMeter('Seen', undefined, 'count')
  const lines: string[] = []
  const progress = new ProgressMeter(938, [time, loss, accuracy, seen], 'Epoch: [3]', (line) =>
    lines.push(line),
  )
  progress.display(0)
  const losses: [number, number][] = [
    [2.31, 64],
    [1.75, 64],
    [1e-7, 32],
  ]
  losses.forEach(([value, rows], i) => {
    time.update(0.1234 * (i + 1))
    loss.update(value, rows)
    accuracy.update(12.345 * i, rows)
    seen.update(i)
  })
  progress.display(17)
  progress.displaySummary()
  expect(lines).toEqual([
    'Epoch: [3][  0/938]\tTime  0.000 ( 0.000)\tLoss 0.0000e+00 (0.0000e+00)\tAcc@1   0.00 (  0.00)\tSeen 0.000000 (0.000000)',
    'Epoch: [3][ 17/938]\tTime  0.370 ( 0.247)\tLoss 1.0000e-07 (1.6240e+00)\tAcc@1  24.69 (  9.88)\tSeen 2.000000 (1.000000)',
    ' *  Loss 1.624 Acc@1 1580.160 Seen 3.000',
  ])
  expect([loss.val, loss.sum, loss.count]).toEqual([1e-7, 2.31 * 64 + 1.75 * 64 + 1e-7 * 32, 160])
  expect(loss.avg).toBe(loss.sum / 160)
  loss.reset()
  expect([loss.val, loss.avg, loss.sum, loss.count]).toEqual([0, 0, 0, 0])
})

test.each([
  [':f', ['0.000000', '-0.000000', '123456.789000', '15000000000000000000000.000000', 'nan']],
  ['6.2f', ['  0.00', ' -0.00', '123456.79', '15000000000000000000000.00', '   nan']],
  [
    ':12.0f',
    ['           0', '          -0', '      123457', '15000000000000000000000', '         nan'],
  ],
  [':.4e', ['0.0000e+00', '-1.5000e-09', '1.2346e+05', '1.5000e+22', 'nan']],
])('numbers as Python writes them with %s', (spec, texts) => {
  const written = [0, -1.5e-9, 123456.789, 1.5e22, Number.NaN].map(numberFormat(spec))
  expect(written).toEqual(texts)
})

test('infinities and long exponents; other formats are refused', () => {
  const values = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 3.7e-123]
  expect(values.map(numberFormat(':9.3e'))).toEqual(['      inf', '     -inf', '3.700e-123'])
  for (const spec of ['', ':d', ':6.2g', '6,2f', '.101f'])
    expect(() => new AverageMeter('Loss', spec)).toThrow(/fmt must be a format such as.*got/)
})

test('a meter of no values is 0, and takes no value that is no number', () => {
  const meter = new AverageMeter('loss')
  meter.update(2, 0)
  expect(meter.avg).toBe(0)
  expect(() => meter.update(undefined as never)).toThrow(
    'AverageMeter.update: val must be a number, got undefined. Correct this argument.',
  )
  expect(() => meter.update(1, -1)).toThrow('n must be a number of at least 0, got -1')
  expect(meter).toMatchObject({ val: 2, sum: 0, count: 0 })
})

test.each([
  ['numBatches', 'ten', []],
  ['meters', 10, {}],
  ['meters[0]', 10, [5]],
])('ProgressMeter refuses wrong %s when it is made', (name, numBatches, meters) => {
  expect(() => new ProgressMeter(numBatches as never, meters as never)).toThrow(
    `ProgressMeter: ${name} must be`,
  )
})
