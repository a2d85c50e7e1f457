import type { Task } from '../src/trainer/settings/task.ts'
import type { DemoName } from './metas.ts'

/** What the compute worker trains, by the name of the demo; loaded when it is asked for. */
export const tasks: Readonly<Record<DemoName, () => Promise<Task>>> = {
  digits: async () => (await import('./digits/demo.ts')).task,
  picture: async () => (await import('./picture/demo.ts')).task,
  playground: async () => (await import('./playground/demo.ts')).task,
  text: async () => (await import('./text/demo.ts')).task,
}
