/** A program of the documentation that runs in tabs: its page, its files there, the arguments of `tabring run`, and what it prints. */
export interface DocsProgram {
  readonly page: string
  /** The program, then the files that it loads. */
  readonly files: readonly [string, ...string[]]
  readonly args: readonly string[]
  readonly prints: RegExp
}

/** tests/all/e2e/docs-programs.spec.ts runs them. */
export const docsPrograms: readonly DocsProgram[] = [
  ...(
    [
      ['layers', 1],
      ['pipeline', 1],
      ['ranks', 2],
      ['grid', 4],
      ['data-parallel', 1],
      ['by-hand', 2],
    ] as const
  ).map(
    ([name, ranks]): DocsProgram => ({
      page: 'docs/guides/split.md',
      files: [`${name}.ts`, 'batches.ts'],
      args: ['--nproc-per-node', String(ranks)],
      prints: /step 200: loss .*0\.[0-4]/,
    }),
  ),
  {
    page: 'docs/guides/split.md',
    files: ['sharded.ts'],
    args: ['--nproc-per-node', '2'],
    prints: /step 60: loss of rank 1 [0-2]\./,
  },
  {
    page: 'docs/guides/split.md',
    files: ['tensor.ts'],
    args: ['--nproc-per-node', '2'],
    prints: /\[1\]: step 60: loss [0-2]\./,
  },
  {
    page: 'README.md',
    files: ['train.ts'],
    args: ['--nproc-per-node', '2'],
    prints: /\[1\]: step 200: loss 0\.[0-3]/,
  },
  {
    page: 'docs/guides/data.md',
    files: ['images.ts'],
    args: ['--data', 'photos'],
    prints: /epoch 3: blue, red: loss 0\.\d/,
  },
  {
    page: 'docs/guides/data.md',
    files: ['workers.ts', 'my-samples.worker.ts'],
    args: [],
    prints: /(\[0\]: 100\n){10}/,
  },
  {
    page: 'docs/reference/pytorch.md',
    files: ['photos.ts'],
    args: ['--nproc-per-node', '2', '--data', 'photos'],
    prints: /epoch 3: loss 0\.0(.|\n)*photos\.pth has 11\d+ bytes/,
  },
  {
    page: 'docs/reference/distributed.md',
    files: ['sum.ts'],
    args: ['--nproc-per-node', '4'],
    prints: /\[3\]: 4 6/,
  },
  {
    page: 'docs/reference/distributed.md',
    files: ['page.ts', 'rank.ts'],
    args: [],
    prints: /10 11 12 13/,
  },
  {
    page: 'docs/reference/launching.md',
    files: ['train.ts'],
    args: ['--nproc-per-node', '2'],
    prints: /\[1\]: rank 1 of 2/,
  },
  {
    page: 'docs/reference/launching.md',
    files: ['elastic.ts'],
    args: ['--elastic', '1:2'],
    prints: /\[1\]: rank 1 of 2, step 200: loss 0\.0/,
  },
]
