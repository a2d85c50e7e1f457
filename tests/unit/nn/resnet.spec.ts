import { expect, test } from 'vitest'
import { resnet18, resnet34, resnet50 } from '../../../src/nn/resnet.ts'
import golden from '../../golden/conv-layers.json'

const makers = { resnet18, resnet34, resnet50 }

for (const { name, state } of golden.resnets) {
  test(`${name} has torchvision's keys and shapes, in its order`, async () => {
    const model = makers[name as keyof typeof makers]({ width: golden.keysWidth })
    const ours = Object.entries(await model.stateDict()).map(
      ([key, { shape }]) => `${key} [${shape.join(', ')}]`,
    )
    expect(ours).toEqual(state)
  })
}

test('the form for small inputs has the same keys', async () => {
  const keys = async (smallInputs: boolean) =>
    Object.keys(await resnet18({ smallInputs, width: 4 }).stateDict())
  expect(await keys(true)).toEqual(await keys(false))
})

test('convolutions begin normal with variance 2 / fan out, norms at one and zero', async () => {
  const state = await resnet18({ width: 16, smallInputs: true }).stateDict()
  const { data, shape } = state['layer4.1.conv2.weight']
  let squares = 0
  for (const value of data) squares += value * value
  const variance = squares / data.length
  expect(variance / (2 / (shape[0] * 9))).toBeGreaterThan(0.97)
  expect(variance / (2 / (shape[0] * 9))).toBeLessThan(1.03)
  expect(new Set(state['bn1.weight'].data)).toEqual(new Set([1]))
  expect(new Set(state['bn1.bias'].data)).toEqual(new Set([0]))
  expect(new Set(state['bn1.running_var'].data)).toEqual(new Set([1]))
})
