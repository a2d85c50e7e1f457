import { afterEach, describe, expect, test } from 'vitest'
import { AdamW } from '../../src/optim/adam.ts'
import { clipGradNorm } from '../../src/optim/clip.ts'
import { GradScaler } from '../../src/optim/grad-scaler.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { largestDistance } from '../support/golden.ts'
import {
  compileGradients,
  type GradientModel,
  goldenGradients,
  gradientModel,
  readParameters,
} from '../support/gradient-model.ts'
import { testRuntime } from '../support/run-op.ts'

// Dynamic loss scaling: a step that overflows changes nothing and halves the scale; without one, all is as without a scaler.

afterEach(async () => (await testRuntime()).gpu.check())

describe('loss scaling', () => {
  const scaled = (model: GradientModel, scaler: GradScaler, clips: boolean) => {
    const optimizer = new AdamW(model.parameters, { lr: 0.01 })
    const program = compileGradients(model, (loss) => {
      scaler.scale(loss).backward()
      if (clips) {
        scaler.unscale(optimizer)
        const norm = clipGradNorm(model.parameters, 2)
        scaler.step(optimizer)
        scaler.update()
        return { norm }
      }
      scaler.step(optimizer)
      scaler.update()
      return undefined
    })
    return { optimizer, program }
  }

  test.each([false, true])(
    'a step with an infinite gradient changes nothing and halves the scale; clipping: %s',
    async (clips) => {
      const model = gradientModel()
      const scaler = new GradScaler({ initScale: 1024, growthInterval: 3 })
      const { optimizer, program } = scaled(model, scaler, clips)
      const run = await program
      const plain = gradientModel()
      const plainOptimizer = new AdamW(plain.parameters, { lr: 0.01 })
      const reference = await compileGradients(plain, (loss) => {
        loss.backward()
        if (clips) clipGradNorm(plain.parameters, 2)
        plainOptimizer.step()
        return undefined
      })
      const bad = [0, 3, 4, 9]
      const scales: number[] = []
      for (let step = 0; step < 12; step++) {
        const gradients = goldenGradients(step)
        if (bad.includes(step)) {
          gradients.b[7] = step === 4 ? Number.NaN : Number.POSITIVE_INFINITY
          const before = await readParameters(model)
          await run.run(gradients)
          expect(await readParameters(model)).toEqual(before)
        } else {
          await run.run(gradients)
          await reference.run(gradients)
        }
        scales.push(await scaler.getScale())
      }
      expect(scales).toEqual([512, 512, 512, 256, 128, 128, 128, 256, 256, 128, 128, 128])
      const expected = await readParameters(plain)
      ;(await readParameters(model)).forEach((values, i) => {
        expect(largestDistance(values, expected[i])).toBeLessThan(1e-6)
      })
      const { state } = await optimizer.stateDict()
      expect(state[0]['step']).toBe(12 - bad.length)
      expect(await scaler.stateDict()).toEqual({
        scale: 128,
        growth_factor: 2,
        backoff_factor: 0.5,
        growth_interval: 3,
        _growth_tracker: 2,
      })
      run.destroy()
      reference.destroy()
    },
  )

  test('without skips it gives the bits of a run without a scaler, for powers of two', async () => {
    const model = gradientModel()
    const plain = gradientModel()
    const scaler = new GradScaler({ initScale: 65_536, growthInterval: 2 })
    const make = (of: GradientModel) =>
      new SGD(of.parameters, { lr: 0.1, momentum: 0.9, dampening: 0.25 })
    const [one, two] = [make(model), make(plain)]
    const scaledRun = await compileGradients(model, (loss) => {
      scaler.scale(loss).backward()
      scaler.step(one)
      scaler.update()
      return undefined
    })
    const plainRun = await compileGradients(plain, (loss) => {
      loss.backward()
      two.step()
      return undefined
    })
    for (let step = 0; step < 6; step++) {
      await scaledRun.run(goldenGradients(step))
      await plainRun.run(goldenGradients(step))
    }
    expect(await scaler.getScale()).toBe(65_536 * 8)
    expect(await readParameters(model)).toEqual(await readParameters(plain))
    scaledRun.destroy()
    plainRun.destroy()
  })

  test('calls in the wrong order are refused', async () => {
    const model = gradientModel()
    const optimizer = new SGD(model.parameters)
    const scaler = new GradScaler()
    await expect(
      compileGradients(model, (loss) => {
        scaler.scale(loss).backward()
        scaler.update()
        return undefined
      }),
    ).rejects.toThrow(/scaler.update: no optimizer has stepped/)
    await expect(
      compileGradients(model, (loss) => {
        scaler.scale(loss).backward()
        clipGradNorm(model.parameters, 1)
        scaler.step(optimizer)
        return undefined
      }),
    ).rejects.toThrow(/Call scaler\.unscale before clipping/)
  })
})
