import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'

/**
 * Fails when a file imports what its layer may not, or when imports form a cycle. docs/architecture.md explains the layers.
 *
 * A layer is a folder under src or demos, or a file of it that is named here because it has rules of its own; `*` stands for one name.
 */
const allowed: Record<string, readonly string[]> = {
  'src/util': [],
  'src/gpu': ['src/util'],
  'src/kernels': ['src/util'],
  'src/graph': ['src/util', 'src/gpu', 'src/kernels'],
  // Single ops on a device: for the specs, the self-test page and the benchmarks.
  'src/check': ['src/util', 'src/gpu', 'src/kernels', 'src/graph'],
  'src/measure': ['src/util', 'src/gpu', 'src/kernels', 'src/graph'],
  'src/measure/peers': ['src/util', 'src/measure'],
  'src/nn': ['src/util', 'src/graph', 'src/kernels'],
  'src/optim': ['src/util', 'src/graph', 'src/kernels'],
  'src/data': ['src/util'],
  'src/peer': ['src/util'],
  'src/distributed': [
    'src/util',
    'src/graph/trace/stored-tensor.ts',
    'src/graph/trace/tensor.ts',
    'src/graph/trace/trace.ts',
    'src/peer',
  ],
  'src/train': [
    'src/util',
    'src/gpu',
    'src/kernels',
    'src/graph',
    'src/nn',
    'src/optim',
    'src/data',
    'src/peer',
    'src/distributed',
  ],
  // What a demo is before it is loaded: the page, the worker and the command line read it.
  'demos/metas.ts': ['src/trainer/settings/demo-meta.ts', 'demos/*/meta.ts'],
  'demos/*/meta.ts': ['src/trainer/settings/demo-meta.ts'],
  'demos/experiment.ts': [
    'src/util',
    'src/trainer/settings/config.ts',
    'src/trainer/settings/demo-meta.ts',
    'demos/metas.ts',
  ],
  // What a demo trains; in the compute worker, loaded when it is asked for.
  'demos/tasks.ts': ['src/trainer/settings/task.ts', 'demos/metas.ts', 'demos/*'],
  'demos/*': [
    'src/util',
    'src/graph',
    'src/nn',
    'src/optim',
    'src/data',
    'src/trainer/settings/task.ts',
    'src/trainer/settings/config.ts',
    'src/trainer/settings/demo-meta.ts',
    'demos/*/meta.ts',
  ],
  // The protocol on a virtual clock: a page of its own, which trains nothing.
  'demos/ring': ['src/util', 'src/peer', 'src/ui/format.ts', 'demos/*/meta.ts'],
  // Trains on ranks of one tab: a page of its own.
  'demos/strategies': [
    'src/util',
    'src/data/shares.ts',
    'src/ui',
    'src/worker',
    'src/trainer/settings/config.ts',
    'src/trainer/settings/demo-meta.ts',
    'demos/experiment.ts',
  ],
  'demos/views.ts': ['src/ui/demo/view-props.ts', 'demos/*/*.tsx'],
  // What a demo shows and takes, on the page; loaded when it is asked for.
  'demos/*/*.tsx': [
    'src/util',
    'src/ui',
    'src/worker',
    'src/trainer/settings/config.ts',
    'src/trainer/settings/demo-meta.ts',
    'demos/*',
  ],
  'src/worker/compute/compute.worker.ts': [
    'src/util',
    'src/gpu',
    'src/graph',
    'src/data',
    'src/measure/device-speed.ts',
    'src/peer',
    'src/train',
    'src/worker',
  ],
  // What runs need of the layers below; the compute worker loads it at the first one.
  'src/worker/compute/training.ts': [
    'demos/tasks.ts',
    'demos/metas.ts',
    'src/util',
    'src/distributed',
    'src/graph',
    'src/peer',
    'src/train',
  ],
  // The page's side: control, connections and types, no device.
  'src/worker': ['src/util', 'src/peer', 'src/trainer/settings/config.ts', 'demos/experiment.ts'],
  'src/ui': [
    'src/util',
    'src/data/shares.ts',
    'src/peer',
    'src/trainer/settings/config.ts',
    'src/trainer/settings/demo-meta.ts',
    'src/worker',
    'demos/experiment.ts',
    'demos/metas.ts',
  ],
  // Pages: they begin a view or a member, and compute nothing.
  'src/main.tsx': ['src/util', 'src/peer', 'src/ui', 'src/worker', 'demos/views.ts'],
  'src/demo-list.tsx': ['src/ui', 'demos/metas.ts', 'demos/*/meta.ts'],
  'src/tab.ts': ['src/util', 'src/peer', 'src/worker'],
  'src/rank.ts': ['src/distributed'],
  node: [
    'src/util',
    'src/peer',
    'src/data',
    'src/distributed',
    'src/trainer/settings/config.ts',
    'src/trainer/settings/demo-meta.ts',
    'src/worker/api.ts',
    'demos/experiment.ts',
    'demos/metas.ts',
  ],
}

/** Programs for a command line or for tests, which share what lies beside their folders and know nothing of each other. */
const apart = ['node/launch', 'node/train', 'node/playwright']

/** Packages that a layer under src may import; `node` may import any. */
const packages: Record<string, readonly string[]> = {
  'src/data': ['papaparse', '@noble/hashes', 'gpt-tokenizer', 'fast-png'],
  'src/util': ['valibot'],
  // The libraries that ours is timed beside.
  'src/measure/peers': ['@jax-js/jax', '@tensorflow/tfjs', '@tensorflow/tfjs-backend-webgpu'],
  'src/peer': ['simple-peer', 'valibot'],
  'src/distributed': ['comlink', 'devalue'],
  'src/train': ['valibot'],
  'demos/experiment.ts': ['valibot'],
  'demos/*/*.tsx': ['preact', 'uplot'],
  'demos/ring': ['preact'],
  'demos/strategies': ['preact'],
  'src/worker': ['comlink'],
  'src/worker/compute/compute.worker.ts': ['comlink'],
  'src/ui': ['preact', 'uplot', 'uqr', 'valibot'],
  'src/main.tsx': ['preact', 'uplot'],
  'src/demo-list.tsx': ['preact'],
  // The user's program.
  'src/rank.ts': ['virtual:tabring-program'],
  src: ['preact'],
}

/** The ways to write an import: `from '…'`, `import '…'`, `import('…')`, `new URL('…', import.meta.url)`. */
const importForms = [
  /\b(?:import|export)\s+(?<type>type\s)?[^'";]*?\sfrom\s+'(?<name>[^']+)'/g,
  /\bimport\s+(?<type>type\s)?'(?<name>[^']+)'/g,
  /\b(?<type>typeof\s+)?import\(\s*'(?<name>[^']+)'\s*\)/g,
  /\bnew URL\(\s*(?<type>type\s)?'(?<name>[^']+)',\s*import\.meta\.url/g,
]

/** Names that belong to pages; these layers must run in workers and in Node. */
const pageOnly = /\b(?:window|document)\.[a-zA-Z]/
const withoutPage = [
  'src/util',
  'src/gpu',
  'src/kernels',
  'src/graph',
  'src/check',
  'src/measure',
  'src/nn',
  'src/optim',
  'src/data',
  'src/train',
  'src/distributed',
  'src/peer',
  'src/worker/compute/compute.worker.ts',
  'src/worker/compute/training.ts',
  'demos/metas.ts',
  'demos/experiment.ts',
  'demos/tasks.ts',
  'demos/*/meta.ts',
  'demos/*',
]
const mayUsePage = new Set(['src/peer/tab/webrtc.ts'])

const root = resolve(import.meta.dirname, '..')
const files = ['src', 'node', 'demos']
  .flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) =>
      join(folder, name),
    ),
  )
  .filter((name) => /\.tsx?$/.test(name) && !name.endsWith('.d.ts'))
  .map((name) => name.replaceAll('\\', '/'))

const isNamed = (name: string, pattern: string) => {
  const [start, end] = pattern.split('*')
  return end === undefined ? name === pattern : name.startsWith(start) && name.endsWith(end)
}
const isUnder = (file: string, layer: string) => {
  const names = file.split('/')
  const own = layer.split('/')
  return own.length <= names.length && own.every((name, i) => isNamed(names[i], name))
}
const depthOf = (layer: string) => layer.split('/').length
const layerOf = (file: string) =>
  Object.keys(allowed)
    .filter((layer) => isUnder(file, layer))
    // The deepest one, and of these the one that names it.
    .sort((a, b) => depthOf(b) - depthOf(a) || b.length - a.length)[0]

const problems: string[] = []
const graph = new Map<string, string[]>()
for (const file of files) {
  const text = readFileSync(join(root, file), 'utf8')
  const layer = layerOf(file)
  const code = text.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*/gm, '')
  const named = importForms.flatMap((form) =>
    [...code.matchAll(form)].map(({ groups }) => ({
      isType: groups!.type !== undefined,
      name: groups!.name,
    })),
  )
  const imports = named
    .filter(({ name }) => name.startsWith('.'))
    .map(({ isType, name }) => ({
      isType,
      path: relative(root, resolve(root, dirname(file), name.replace(/\?.*$/, ''))).replaceAll(
        '\\',
        '/',
      ),
    }))
  if (layer !== 'node') {
    for (const { name } of named) {
      if (name.startsWith('.')) continue
      const isAllowed = (packages[layer ?? 'src'] ?? []).some((one) => isUnder(name, one))
      if (!isAllowed)
        problems.push(
          `${file} imports ${name}: ${layer ?? 'src'} may import ${packages[layer ?? 'src']?.join(', ') ?? 'no package'}`,
        )
    }
  }
  graph.set(
    file,
    imports.filter(({ isType }) => !isType).map(({ path }) => path),
  )
  if (layer) {
    for (const { path, isType } of imports) {
      const isAllowed =
        isUnder(path, layer) ||
        allowed[layer].some((other) => isUnder(path, other)) ||
        // Types alone may come from the layers that a worker or a view describes.
        (isType &&
          (layer === 'src/worker' || layer === 'src/ui') &&
          /^src\/(gpu|train|peer)\//.test(path))
      if (!isAllowed && /^(src|demos)\//.test(path))
        problems.push(
          `${file} imports ${path}: ${layer} may import ${allowed[layer].join(', ') || 'nothing'}`,
        )
    }
  }
  const own = apart.find((folder) => isUnder(file, folder))
  for (const { path } of imports) {
    const other = own && apart.find((folder) => folder !== own && isUnder(path, folder))
    if (other)
      problems.push(`${file} imports ${path}: ${own} and ${other} know nothing of each other`)
  }
  const isPage = layer === 'demos/*/*.tsx' || mayUsePage.has(file)
  if (withoutPage.some((other) => isUnder(file, other)) && !isPage) {
    const code = text.replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '')
    if (pageOnly.test(code)) problems.push(`${file} uses window or document, which only a page has`)
  }
}

const state = new Map<string, 'open' | 'done'>()
function visit(file: string, path: readonly string[]): void {
  if (state.get(file) === 'done') return
  if (state.get(file) === 'open') {
    problems.push(`cycle: ${[...path.slice(path.indexOf(file)), file].join(' -> ')}`)
    return
  }
  state.set(file, 'open')
  for (const next of graph.get(file) ?? []) visit(next, [...path, file])
  state.set(file, 'done')
}
for (const file of graph.keys()) visit(file, [])

for (const problem of problems) console.error(problem)
console.log(`layers: ${files.length} files, ${problems.length} problems`)
process.exit(problems.length > 0 ? 1 : 0)
