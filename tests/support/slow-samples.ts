import { type Dataset, randomStreamOf, type Sample } from '../../src/data/samples.ts'

/** Milliseconds that making one of the slow samples keeps a thread busy. */
export const decodeMs = 20

/**
 * Samples that take as long as a large image takes to decode; x is a random draw and what the work came to.
 *
 * Some numbers misbehave, for the tests of failures: `fails` throws, `dies` ends its worker.
 */
export const trouble = { fails: 1000, dies: 1001 } as const

export const slowSamples: Dataset<Sample> = {
  length: 1002,
  get(index, key) {
    if (index === trouble.fails) throw new Error('the picture is torn')
    if (index === trouble.dies) {
      ;(self as unknown as { close(): void }).close()
      // A closed worker still ends the task that it is in.
      return new Promise(() => undefined)
    }
    const until = performance.now() + decodeMs
    let work = 0
    while (performance.now() < until) work++
    return {
      x: { shape: [2], data: Float32Array.of(randomStreamOf(key).unit(), Math.min(work, 1)) },
      y: index,
    }
  },
}
