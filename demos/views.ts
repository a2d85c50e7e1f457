import type { ViewLoaders } from '../src/ui/demo/view-props.ts'
import type { DemoName } from './metas.ts'

/** What each demo shows on the page, loaded when it is first wanted. */
export const views = {
  digits: async () => (await import('./digits/view.tsx')).DigitsView,
  picture: async () => (await import('./picture/view.tsx')).PictureView,
  playground: async () => (await import('./playground/view.tsx')).PlaygroundView,
  text: async () => (await import('./text/view.tsx')).TextView,
} satisfies Record<DemoName, ViewLoaders[string]>
