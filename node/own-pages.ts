import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { forWorkers } from './left-out.ts'
import { releaseBuild } from './release-build.ts'
import { type Served, serve } from './serve.ts'

const repository = join(import.meta.dirname, '..')

/**
 * Builds some of the repository's pages as a release is built, into a folder of their own.
 *
 * `pages`: HTML files, from the repository's root; each lies at that path.
 */
export async function buildPages(
  ...pages: readonly string[]
): Promise<{ root: string; remove: () => Promise<void> }> {
  const root = await mkdtemp(join(tmpdir(), 'tabring-pages-'))
  const remove = () => rm(root, { recursive: true, force: true })
  try {
    await releaseBuild({
      root: repository,
      configFile: false,
      logLevel: 'error',
      base: './',
      plugins: forWorkers(),
      worker: { format: 'es', plugins: forWorkers },
      build: {
        outDir: root,
        emptyOutDir: true,
        target: 'es2023',
        chunkSizeWarningLimit: 4000,
        rolldownOptions: { input: pages.map((page) => join(repository, page)) },
      },
    })
    return { root, remove }
  } catch (error) {
    await remove()
    throw error
  }
}

/** `buildPages`, served with signaling and its relay on a free port. `close` ends the server and removes the folder. */
export async function servePages(...pages: readonly string[]): Promise<Served> {
  const { root, remove } = await buildPages(...pages)
  try {
    const served = await serve({ root, port: 0, policy: null, signaling: { relay: true } })
    return {
      ...served,
      close: async () => {
        await served.close()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}
