import { errorCodes } from '../../src/util/error-codes.ts'
import { markdownTable } from '../../src/util/markdown.ts'
import { madeBy } from './made-by.ts'

/** docs/reference/errors.md: every code with its cause and what to do. */
export const errorsPage = (): string =>
  [
    madeBy('src/util/error-codes.ts'),
    '',
    '# Errors',
    '',
    'Every Tabring error has a stable `code` and a message for people: `<where>: <what is wrong>. <what to do>`. It is a `TabringError` or a subclass. An argument of the wrong type, which TypeScript catches but JavaScript does not, throws an `ArgumentTypeError`: for `instanceof`, both a `TypeError` and a `TabringError`.',
    '',
    markdownTable(
      ['code', 'cause', 'what to do'],
      Object.entries(errorCodes).map(([code, { cause, remedy }]) => [`\`${code}\``, cause, remedy]),
    ),
    '',
  ].join('\n')
