import { existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Plugin } from 'vite'
import { releaseBuild } from '../../node/release-build.ts'

/** A file of JavaScript that a build made. */
export interface Chunk {
  /** Below the output folder. */
  readonly file: string
  /** As the bundler calls it. */
  readonly name: string
  /** The source that it begins with; empty where it is what other chunks share. */
  readonly source: string
  /** All sources in it. */
  readonly modules: readonly string[]
  /** Chunks that come with it. */
  readonly imports: readonly string[]
  /** Chunks that it may load later, with workers. */
  readonly later: readonly string[]
  readonly gzipBytes: number
}

export interface Built {
  /** The output folder, which the caller removes. */
  readonly folder: string
  readonly chunks: ReadonlyMap<string, Chunk>
}

/** As servers and benchmarks of sizes count: gzip at its best. */
export const gzipBytesOf = (file: string): number =>
  gzipSync(readFileSync(file), { level: 9 }).length

/** Builds the pages as a release is built, into a temporary folder, and returns every chunk, those of workers too. */
export async function buildChunks(root: string): Promise<Built> {
  const folder = mkdtempSync(join(tmpdir(), 'tabring-size-'))
  const found: (Omit<Chunk, 'gzipBytes' | 'later'> & { dynamic: readonly string[] })[] = []
  const sourceOf = (id: string) =>
    relative(root, id.replace(/^\0/, '').replace(/\?.*/, '')).replace(/^.*node_modules\//, '')
  const record = (): Plugin => ({
    name: 'tabring:size',
    generateBundle(_options, bundle) {
      for (const output of Object.values(bundle)) {
        if (output.type !== 'chunk') continue
        found.push({
          file: output.fileName,
          name: output.name,
          source: output.facadeModuleId ? sourceOf(output.facadeModuleId) : '',
          modules: output.moduleIds.map(sourceOf),
          imports: output.imports,
          dynamic: output.dynamicImports,
        })
      }
    },
  })
  await releaseBuild({
    root,
    configFile: join(root, 'vite.config.ts'),
    logLevel: 'warn',
    build: { outDir: folder, emptyOutDir: true },
    plugins: [record()],
    worker: { plugins: () => [record()] },
  })
  // The chunk of a page without a script is not written.
  const written = found.filter(({ file }) => existsSync(join(folder, file)))
  const files = written.map(({ file }) => file)
  const chunks = new Map(
    written.map(({ dynamic, ...chunk }) => {
      const path = join(folder, chunk.file)
      const text = readFileSync(path, 'utf8')
      // A worker is named in the text of who starts it.
      const named = files.filter(
        (file) =>
          /\bworker\b/.test(file) && file !== chunk.file && text.includes(file.split('/').at(-1)!),
      )
      const later = [...new Set([...dynamic, ...named])]
      return [chunk.file, { ...chunk, later, gzipBytes: gzipBytesOf(path) }]
    }),
  )
  return { folder, chunks }
}

/** The chunks with all that comes with them. */
export function withImports(
  chunks: ReadonlyMap<string, Chunk>,
  files: Iterable<string>,
): Set<string> {
  const all = new Set<string>()
  const add = (file: string) => {
    if (all.has(file) || !chunks.has(file)) return
    all.add(file)
    for (const one of chunks.get(file)!.imports) add(one)
  }
  for (const file of files) add(file)
  return all
}
