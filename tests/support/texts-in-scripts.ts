import { RandomStream } from '../../src/util/random.ts'

/** Characters that all versions of Unicode from 5.1 on agree on, by script. */
const scripts: Readonly<Record<string, readonly (readonly [first: number, last: number])[]>> = {
  Latin: [
    [0x41, 0x5a],
    [0x61, 0x7a],
    [0xc0, 0x17f],
  ],
  Greek: [
    [0x386, 0x386],
    [0x388, 0x38a],
    [0x391, 0x3a1],
    [0x3a3, 0x3ce],
  ],
  Cyrillic: [[0x400, 0x481]],
  Arabic: [
    [0x620, 0x652],
    [0x660, 0x669],
    [0x671, 0x6d3],
  ],
  Hebrew: [
    [0x5b0, 0x5bc],
    [0x5d0, 0x5ea],
  ],
  Devanagari: [
    [0x901, 0x939],
    [0x93c, 0x94d],
    [0x958, 0x96f],
  ],
  Bengali: [
    [0x995, 0x9a8],
    [0x9aa, 0x9b0],
    [0x9be, 0x9c4],
    [0x9e6, 0x9ef],
  ],
  Tamil: [
    [0xb85, 0xb8a],
    [0xbae, 0xbb9],
    [0xbbe, 0xbc2],
    [0xbc6, 0xbc8],
  ],
  Telugu: [
    [0xc05, 0xc0c],
    [0xc15, 0xc28],
    [0xc3e, 0xc44],
    [0xc66, 0xc6f],
  ],
  Gujarati: [
    [0xa85, 0xa8b],
    [0xa95, 0xaa8],
    [0xabe, 0xac5],
    [0xae6, 0xaef],
  ],
  Thai: [
    [0xe01, 0xe3a],
    [0xe40, 0xe59],
  ],
  Khmer: [
    [0x1780, 0x17b3],
    [0x17b6, 0x17d3],
    [0x17e0, 0x17e9],
  ],
  Myanmar: [
    [0x1000, 0x1021],
    [0x102c, 0x1032],
    [0x1036, 0x1049],
  ],
  Tibetan: [
    [0xf40, 0xf47],
    [0xf49, 0xf69],
    [0xf71, 0xf84],
  ],
  Georgian: [
    [0x10d0, 0x10f0],
    [0x10a0, 0x10c5],
  ],
  Armenian: [
    [0x531, 0x556],
    [0x561, 0x587],
  ],
  Ethiopic: [
    [0x1200, 0x1246],
    [0x1268, 0x1286],
    [0x12a8, 0x12ae],
  ],
  Hangul: [
    [0xac00, 0xd7a3],
    [0x1100, 0x1112],
  ],
  Kana: [
    [0x3041, 0x3094],
    [0x30a1, 0x30fa],
  ],
  Han: [
    [0x4e00, 0x9fa5],
    [0x20000, 0x20100],
  ],
}

const gaps = [' ', ' ', ' ', ' ', '  ', '\n', '\n\n', ', ', '. ', '-', "'", '’', '\t', '! ', ' \n ']
const latin = [
  "don't",
  "WE'LL",
  'x',
  '42',
  '1234567',
  '3.14',
  '<|im_end|>',
  '🙂',
  '👩‍💻',
  '$',
  '\u00a0',
]

const charactersOf = (ranges: readonly (readonly [number, number])[]): string[] =>
  ranges.flatMap(([first, last]) =>
    Array.from({ length: last - first + 1 }, (_, i) => String.fromCodePoint(first + i)),
  )

/** Texts of random words: `each` in every script, with digits, marks, emoji, spaces of several kinds and words of other scripts. */
export function textsInScripts(each: number): string[] {
  return Object.values(scripts).flatMap((ranges, number) => {
    const characters = charactersOf(ranges)
    return Array.from({ length: each }, (_, i) => {
      const random = new RandomStream(7, number * each + i)
      const below = (count: number) => random.below(count)
      const pick = <T>(list: readonly T[]): T => list[below(list.length)]
      // Of one place of the script, as words of one language are.
      const start = below(characters.length)
      const letter = () =>
        below(8) === 0 ? pick(characters) : characters[(start + below(40)) % characters.length]
      const word = () => Array.from({ length: 1 + below(7) }, letter).join('')
      const words = Array.from({ length: 1 + below(20) }, () =>
        below(9) === 0 ? pick(latin) : word(),
      )
      return words.map((one) => one + pick(gaps)).join('')
    })
  })
}
