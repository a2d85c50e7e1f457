import { expect, test } from 'vitest'
import { save } from '../../../src/data/saved-tree.ts'
import { loadCheckpoint, saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { packCheckpoint, unpackCheckpoint } from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { quoted } from '../../../src/util/kind-of.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'

test.each([Number.NaN, -1, Number.POSITIVE_INFINITY, '7', null])(
  'saveCheckpoint refuses a step or an epoch of %s, and writes nothing',
  async (count) => {
    const folder = seenFolder()
    for (const name of ['step', 'epoch'])
      await expect(saveCheckpoint({ [name]: count }, { folder })).rejects.toMatchObject({
        code: 'config.invalid',
        message: `saveCheckpoint: ${name} must be a finite number of at least 0, got ${typeof count === 'string' ? `"${count}"` : count}. Change ${name}.`,
      })
    expect([...folder.files.keys()]).toEqual([])
  },
)

test('a bare model, which torch.save takes, is refused and writes nothing', async () => {
  const folder = seenFolder()
  const model = new Linear(2, 1)
  const text = /must be an object with parts by name, such as \{ model \}, got a/
  await expect(saveCheckpoint(model as never, { folder })).rejects.toThrow(text)
  await expect(packCheckpoint(model as never)).rejects.toThrow(text)
  const file = await packCheckpoint({ model })
  await expect(unpackCheckpoint(file, model as never)).rejects.toThrow(text)
  expect([...folder.files.keys()]).toEqual([])
})

test.each([{ model: null }, { model: undefined }, { optimizer: null }, { scheduler: null }])(
  'saveCheckpoint refuses the state %j, in which a part is missing, and writes nothing',
  async (state) => {
    const folder = seenFolder()
    const [[name, value]] = Object.entries(state)
    await expect(saveCheckpoint(state, { folder })).rejects.toMatchObject({
      code: 'config.invalid',
      message: `saveCheckpoint: ${name} must be a part with a state, got ${value}. Pass the ${name} itself, or leave ${name} out.`,
    })
    expect([...folder.files.keys()]).toEqual([])
  },
)

test.each([undefined, null, 5, {}, Promise.resolve(new Linear(1, 1))])(
  'loadCheckpoint refuses %o in the place of a part',
  async (model) => {
    const folder = seenFolder()
    await saveCheckpoint({ model: new Linear(1, 1) }, { folder })
    await expect(loadCheckpoint({ model: model as never }, { folder })).rejects.toMatchObject({
      code: 'config.invalid',
      message: `loadCheckpoint: model must be a part with a state, got ${quoted(model)}. Correct this argument.`,
    })
  },
)

test.each([{}, 2, null, [], 'a', { read: () => 1 }])(
  'a folder that is %j is no folder, whatever the disk does',
  async (folder) => {
    const options = { folder: folder as never }
    await expect(saveCheckpoint({}, options)).rejects.toThrow(
      /^saveCheckpoint: folder must be one with read\(\), write\(\) and remove\(\), got /,
    )
    await expect(loadCheckpoint({}, options)).rejects.toThrow(
      /^loadCheckpoint: folder must be one with read\(\), write\(\) and remove\(\), got /,
    )
  },
)

test('packCheckpoint and unpackCheckpoint name themselves in their errors', async () => {
  const part = () => ({ model: new Linear(1, 1) })
  await expect(packCheckpoint({ checkpoint: 1 })).rejects.toThrow(/^packCheckpoint: the name /)
  await expect(packCheckpoint(null as never)).rejects.toThrow(/^packCheckpoint: state must/)
  const file = await packCheckpoint(part())
  for (const call of [
    () => unpackCheckpoint(file, null as never),
    () => unpackCheckpoint(file, { other: new Linear(1, 1) }),
    () => unpackCheckpoint(file, part(), { strict: 1 as never }),
    () => unpackCheckpoint(save({ a: 1 }), part()),
  ])
    await expect(Promise.resolve().then(call)).rejects.toThrow(/^unpackCheckpoint: /)
})
