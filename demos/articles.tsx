import type { ComponentType } from 'preact'
import { useLoaded } from '../src/ui/parts/use-loaded.ts'
import { shownDemo } from '../src/ui/state/room-facts.ts'
import type { Snapshot } from '../src/ui/state/snapshot.ts'
import { type DemoName, isDemo } from './metas.ts'

const articles: Readonly<Record<DemoName, () => Promise<ComponentType>>> = {
  digits: async () => (await import('./digits/article.tsx')).DigitsArticle,
  picture: async () => (await import('./picture/article.tsx')).PictureArticle,
  playground: async () => (await import('./playground/article.tsx')).PlaygroundArticle,
  text: async () => (await import('./text/article.tsx')).TextArticle,
}

/** The article of the demo that the training page shows. */
export function DemoArticle({ snapshot }: { snapshot: Snapshot }) {
  const name = shownDemo(snapshot)
  return isDemo(name) ? <Named key={name} name={name} /> : null
}

function Named({ name }: { name: DemoName }) {
  const { part: Article, failure } = useLoaded('the article', articles[name], true)
  if (failure) return <p role="alert">{failure}</p>
  return Article && <Article />
}
