import { join, relative } from 'node:path'
import type { Plugin } from 'vite'
import { type AnyDemo, allDemos, ownPages } from '../demos/all-demos.ts'
import { docsPages } from './docs-pages.ts'
import { htmlOf, type SitePage } from './site-page.ts'

/** The site's pages whose HTML is in no file: it is made when they are built, or asked for. */

const repository = join(import.meta.dirname, '..')

const appPage = (title: string, description: string, script: string, demo = ''): SitePage => ({
  ...{ title, description, script },
  body: `<div id="app"${demo && ` data-demo="${demo}"`}></div>
    <noscript>This page needs JavaScript.</noscript>`,
})

const lists: Readonly<Record<string, SitePage>> = {
  'demos/index.html': appPage(
    'Demos',
    'What Tabring can train in browser tabs, one page per demo.',
    'src/demo-list.tsx',
  ),
  'class/index.html': appPage(
    'Class',
    'Five lessons of ten minutes on how machines learn together.',
    'src/class.tsx',
  ),
  'class/teacher/index.html': appPage(
    'For teachers',
    'Five lessons on how machines learn together: preparation, answers, questions.',
    'src/teacher.tsx',
  ),
}

const demoPage = (name: AnyDemo): SitePage => {
  const { title, sentence } = allDemos[name]
  return ownPages.includes(name)
    ? appPage(title, sentence, `demos/${name}/main.tsx`)
    : appPage(title, sentence, 'src/main.tsx', name)
}

/** By the HTML file that each would be, from the repository's root. */
const pagesByFile = (): Map<string, () => SitePage> =>
  new Map([
    ...Object.entries(lists).map(([file, page]) => [file, () => page] as const),
    ...(Object.keys(allDemos) as AnyDemo[]).map(
      (name) => [`demos/${name}/index.html`, () => demoPage(name)] as const,
    ),
    ...docsPages(),
  ])

/** The pages' files for the bundler. */
export const siteInputs = (): string[] => [...pagesByFile().keys()]

/** Returns the plugin that makes these pages where a build or the development server asks for them. */
export function sitePages(): Plugin {
  const pages = pagesByFile()
  const fileOf = (id: string) => relative(repository, id).replaceAll('\\', '/')
  const htmlAt = (file: string) => {
    const page = pages.get(file)?.()
    return page && htmlOf(file, page)
  }
  return {
    name: 'tabring:site',
    resolveId: (id) =>
      pages.has(id) ? join(repository, id) : pages.has(fileOf(id)) ? id : undefined,
    load: (id) => htmlAt(fileOf(id)),
    configureServer({ middlewares, transformIndexHtml }) {
      middlewares.use(({ url = '' }, response, next) => {
        const file = url
          .replace(/[?#].*/, '')
          .replace(/^\//, '')
          .replace(/\/$/, '/index.html')
        const html = htmlAt(file)
        if (!html) return next()
        transformIndexHtml(`/${file}`, html).then((text) => {
          response.setHeader('Content-Type', 'text/html')
          response.end(text)
        }, next)
      })
    },
  }
}
