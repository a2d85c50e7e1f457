import { type DemoName, metas } from './metas.ts'
import { meta as ring } from './ring/meta.ts'
import { meta as split } from './split/meta.ts'
import { meta as strategies } from './strategies/meta.ts'

/** Every demo with a page under demos/, by its folder's name: those that rooms train, and those with a separate page. */
export const allDemos = { ...metas, ring, strategies, split } as const

export type AnyDemo = keyof typeof allDemos

/** The demos that rooms train, the default one first. */
export const trainedDemos = Object.keys(metas) as readonly DemoName[]

/** The demos that do not open the training page. */
export const ownPages = Object.keys(allDemos).filter((name) => !Object.hasOwn(metas, name))
