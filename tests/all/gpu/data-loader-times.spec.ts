import { expect, test } from 'vitest'
import { slowLoader } from '../../support/slow-loader.ts'
import { decodeMs } from '../../support/slow-samples.ts'

const upTo = (count: number) => Array.from({ length: count }, (_, i) => i)

test('a 20 ms decode is hidden at 2 workers', async () => {
  const stepMs = 30
  /** Median milliseconds that a training loop waits for its next batch, once the workers are up. */
  const waitOf = async (numWorkers: number) => {
    const waits: number[] = []
    const received: number[] = []
    let asked = performance.now()
    const loader = slowLoader(numWorkers, upTo(24))
    for await (const _ of loader) {
      waits.push(performance.now() - asked)
      received.push(loader.waitedMs)
      // A step on the device: this thread has nothing to do meanwhile.
      await new Promise((resolve) => setTimeout(resolve, stepMs))
      asked = performance.now()
    }
    const medianOf = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1]
    // The loader's figure is the time that the loop waited, but for what this thread did in between.
    const differences = waits.map((ms, i) => Math.abs(ms - received[i]))
    expect(medianOf(differences)).toBeLessThan(decodeMs / 2)
    return medianOf(waits.slice(4))
  }
  const alone = await waitOf(0)
  const helped = await waitOf(2)
  console.log(`waiting for a batch: ${alone.toFixed(1)} ms alone, ${helped.toFixed(1)} ms with 2`)
  expect(alone).toBeGreaterThanOrEqual(decodeMs - 1)
  expect(helped).toBeLessThan(alone / 2)
})
