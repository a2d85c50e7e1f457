import { expect } from 'vitest'
import { autocast, GradScaler } from '../../src/entries/amp.ts'
import { type CompileOptions, compile } from '../../src/graph/compile/compile.ts'
import { mseLoss } from '../../src/graph/functions/losses.ts'
import type { Outputs } from '../../src/graph/plan/prepare.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { tensorType } from '../../src/util/shape.ts'
import golden from '../golden/amp.json'
import { formulaUniform } from './formula-data.ts'
import { allowedDistance, largestDistance } from './golden.ts'

const { batch, sizes } = golden
const columns = { x: sizes[0], y: sizes[sizes.length - 1] }

/** The MLP of tests/golden/amp.py with the weights that PyTorch began with. */
export function halfModel(): Sequential {
  const layers = sizes.slice(1).map((size, n) => {
    const layer = new Linear(sizes[n], size)
    const bound = sizes[n] ** -0.5
    layer.weight.assign(formulaUniform(10 + n, size * sizes[n], bound))
    layer.bias!.assign(formulaUniform(20 + n, size, bound))
    return layer
  })
  return new Sequential(...layers.flatMap((layer, n) => (n === 0 ? [layer] : [new ReLU(), layer])))
}

export const halfTypes = {
  x: tensorType([batch, columns.x]),
  y: tensorType([batch, columns.y]),
}

/** Trains as tests/golden/amp.py does and holds losses, scales, first gradients and weights against PyTorch's. */
export async function checkHalfTraining(options: CompileOptions): Promise<void> {
  const model = halfModel()
  const parameters = model.parameters()
  const optimizer = new SGD(parameters, { lr: golden.lr })
  const scaler = new GradScaler({
    initScale: golden.initScale,
    growthInterval: golden.growthInterval,
  })
  const program = await compile(
    ({ x, y }): Outputs => {
      const loss = autocast({ dtype: 'float16' }, () => mseLoss(model.forward(x), y))
      optimizer.zeroGrad()
      scaler.scale(loss).backward()
      const gradients = parameters.map(({ grad }, n) => [`d${n}`, grad!] as const)
      scaler.step(optimizer)
      scaler.update()
      return { loss, ...Object.fromEntries(gradients) }
    },
    halfTypes,
    options,
  )
  const firstStep = golden.scales.findIndex((scale, n) => golden.scales[n + 1] >= scale)
  for (let step = 0; step < golden.steps; step++) {
    expect(await scaler.getScale(), `scale before step ${step}`).toBe(golden.scales[step])
    const outputs = await program.run({
      x: formulaUniform(100 + step, batch * columns.x, 1),
      y: formulaUniform(200 + step, batch * columns.y, 1),
    })
    const allowed = allowedDistance(Math.max(...golden.distances), golden.losses)
    expect(Math.abs(outputs.loss[0] - golden.losses[step]), `loss ${step}`).toBeLessThan(allowed)
    if (step !== firstStep) continue
    golden.firstGradients.forEach(({ values, distance }, n) => {
      const got = outputs[`d${n}`].map((value) => value / golden.scales[step])
      expect(largestDistance(got, values), `d${n}`).toBeLessThan(allowedDistance(distance, values))
    })
  }
  for (const [n, { values, distance }] of golden.parameters.entries()) {
    const data = await parameters[n].read()
    expect(largestDistance(data, values), `parameter ${n}`).toBeLessThan(
      allowedDistance(distance, values),
    )
  }
  program.destroy()
}
