import type { DemoMeta } from '../src/trainer/settings/demo-meta.ts'
import { meta as digits } from './digits/meta.ts'
import { meta as picture } from './picture/meta.ts'
import { meta as playground } from './playground/meta.ts'
import { meta as text } from './text/meta.ts'

/** All demos by name; the first is the default. The name is the folder's, the setting `demo`, and `?demo=` in the address. */
export const metas = { digits, playground, picture, text } as const satisfies Readonly<
  Record<string, DemoMeta>
>

export type DemoName = keyof typeof metas

export const isDemo = (name: string): name is DemoName => Object.hasOwn(metas, name)
