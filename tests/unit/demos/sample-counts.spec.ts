import { expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { metas } from '../../../demos/metas.ts'
import { tasks } from '../../../demos/tasks.ts'

it.each(Object.entries(tasks))(
  'the form of %s knows how many training samples its own data has',
  async (demo, loadTask) => {
    const task = await loadTask()
    const { data, samples } = metas[demo as keyof typeof metas]
    expect(Object.keys(samples)).toEqual(Object.keys(data))
    for (const [name, count] of Object.entries(samples)) {
      const config = parseTrainConfig({ demo, data: name })
      const loaded = await task.load({ config, given: null, baseUrl: 'http://localhost/' })
      expect(loaded.train.count, name).toBe(count)
    }
  },
)
