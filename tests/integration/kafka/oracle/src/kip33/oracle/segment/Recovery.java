package kip33.oracle.segment;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidOffsetException;

/**
 * Recovers one segment as a broker does after an unclean shutdown.
 *
 * <p>Outcomes, as Kafka's log loader takes what recovery throws: {@code recovered} leaves the two
 * indexes beside the log; {@code emptied} (offsets not increasing) empties the segment; {@code split}
 * (an offset beyond int32) divides it; {@code load_failure} is everything else, the log stays
 * offline. An overflow that is no overflow (an offset below the base) is refused by the split and so
 * is a load failure too.
 */
public final class Recovery {
    // By name: the class has another package before Kafka 3.7.
    private static final String OVERFLOW = "LogSegmentOffsetOverflowException";

    public Map<String, Object> answer(JsonNode request) {
        SegmentSettings settings = SegmentSettings.of(request);
        Map<String, Object> answer = new LinkedHashMap<>();
        try (Partition partition = new Partition(settings)) {
            recover(partition, answer);
        } catch (Throwable failure) {
            // Errors too: the snappy library throws one at a chunk size it finds too large.
            name(answer, "load_failure", failure);
        }
        answer.put("valid_bytes", settings.log().length());
        return answer;
    }

    private static void recover(Partition partition, Map<String, Object> answer) throws IOException {
        try {
            answer.put("truncated_bytes", partition.recover());
            answer.put("outcome", "recovered");
        } catch (InvalidOffsetException notIncreasing) {
            name(answer, "emptied", notIncreasing);
        } catch (KafkaException failure) {
            boolean overflow = failure.getClass().getSimpleName().equals(OVERFLOW);
            name(answer, overflow && partition.hasOverflow() ? "split" : "load_failure", failure);
        }
    }

    private static void name(Map<String, Object> answer, String outcome, Throwable thrown) {
        answer.put("outcome", outcome);
        answer.put("exception", thrown.getClass().getSimpleName());
        answer.put("message", String.valueOf(thrown.getMessage()));
    }
}
