import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { parseTrainConfig } from '../../src/train/config.ts'
import { Trainer } from '../../src/train/trainer.ts'
import { ringOf } from '../support/process-ring.ts'
import { testRuntime } from '../support/run-op.ts'

// A loss that is no number because of one rank's samples: the others learn which op it was, and where.

const count = 48

/** A file of bytes in the IDX format. */
function idx(dims: number[], fill: (index: number) => number): Uint8Array<ArrayBuffer> {
  const header = 4 + 4 * dims.length
  const elements = dims.reduce((product, d) => product * d, 1)
  const bytes = new Uint8Array(header + elements)
  bytes.set([0, 0, 8, dims.length])
  for (const [i, d] of dims.entries()) new DataView(bytes.buffer).setUint32(4 + 4 * i, d)
  for (let i = 0; i < elements; i++) bytes[header + i] = fill(i)
  return bytes
}

/** Serves folders of images that are all of one brightness: `/bytes-255/` is white. */
beforeEach(() => {
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (address) => {
    const { pathname } = new URL(String(address))
    const brightness = Number(/bytes-(\d+)/.exec(pathname)?.[1])
    if (!/(train|test)-(images-idx3|labels-idx1)-ubyte$/.test(pathname))
      return new Response(null, { status: 404 })
    const body = pathname.includes('-images-')
      ? idx([count, 28, 28], () => brightness)
      : idx([count], (i) => i % 10)
    return new Response(body)
  })
})
afterEach(async () => {
  vi.restoreAllMocks()
  ;(await testRuntime()).gpu.check()
})

/** How each rank's run ended, and after which step, with such images on each. */
async function endsOf(brightness: readonly number[], lr: number) {
  const runtime = await testRuntime()
  const config = parseTrainConfig({
    data: 'images',
    optimizer: 'sgd',
    lr,
    steps: 4,
    batchSize: 12,
    bucketCapMb: 0.3,
  })
  return Promise.all(
    (await ringOf(brightness.length)).map(async (group, rank) => {
      const told: number[] = []
      const trainer = new Trainer({
        runtime,
        group,
        config,
        baseUrl: `https://data.example/bytes-${brightness[rank]}/`,
        onEvent: (event) => event.event === 'step' && told.push(event.step),
      })
      const reason = await trainer.run().then(
        () => 'it went on to the end',
        (error: unknown) => error,
      )
      trainer.destroy()
      group.destroy()
      return { reason, told }
    }),
  )
}

test('the rank whose samples lead to it names the op, in the error of every rank', async () => {
  // After one step at this rate, white images overflow in the second layer, black ones do not: only biases reach it.
  const ends = await endsOf([0, 0, 255], 2e19)
  expect(ends).toHaveLength(3)
  for (const { reason, told } of ends) {
    expect(reason).toMatchObject({
      code: 'train.nan',
      message: expect.stringMatching(
        /^step 2: rank 2: \w+\(f32\[4, 256\], [^)]*\): expected a finite result, got values that are not, .*learning rate/,
      ),
    })
    expect(told).toEqual([1])
  }
})
